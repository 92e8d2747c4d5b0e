#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "data/tokenizer/utf8.h"

namespace moesaic::unicode {
namespace {

struct Block {
  char32_t first, last;
};
// Characters that are in NFC, have combining class 0, and never combine with what stands before them: most text.
// Whatever stands between two of them is normalised without looking further.
constexpr Block kPlain[] = {{0x0, 0x2FF},      {0x400, 0x482},   {0x48A, 0x52F},   {0x2010, 0x2027},
                            {0x2030, 0x205E},  {0x2190, 0x2211}, {0x3003, 0x3029}, {0x3041, 0x3096},
                            {0x30A1, 0x30FA},  {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3},
                            {0x1F300, 0x1FAFF}};

bool is_plain(char32_t code) {
  if (code <= kPlain[0].last) return true;
  return std::any_of(std::begin(kPlain) + 1, std::end(kPlain),
                     [code](Block block) { return block.first <= code && code <= block.last; });
}

int combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

/// utf8proc_map does all of this, but sorts marks in quadratic time.
void append_normalized(std::string& out, std::string_view text, Form form) {
  const bool compat = form == Form::nfkc || form == Form::nfkd;
  const bool compose = form == Form::nfc || form == Form::nfkc;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const utf8::Character c = utf8::character_at(text, at);
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts, 32, options, nullptr);
    MOESAIC_CHECK(count >= 0 && count <= 32, "U+{:X} has no decomposition", uint32_t(c.code));
    codes.insert(codes.end(), parts, parts + count);
    at += c.length;
  }
  for (auto mark = codes.begin(); mark != codes.end();) {
    mark = std::find_if(mark, codes.end(), [](auto code) { return combining_class(code) != 0; });
    const auto end = std::find_if(mark, codes.end(), [](auto code) { return combining_class(code) == 0; });
    if (end - mark > 1)
      std::stable_sort(mark, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    mark = end;
  }
  auto length = static_cast<utf8proc_ssize_t>(codes.size());
  if (compose)
    length = utf8proc_normalize_utf32(codes.data(), length,
                                      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    utf8::append(out, static_cast<char32_t>(codes[static_cast<size_t>(i)]));
}

}  // namespace

std::string normalize(std::string_view text, Form form) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  if (form != Form::nfc) {
    append_normalized(out, text, form);
    return out;
  }
  size_t copied = 0;      // text before it is in out
  size_t last_plain = 0;  // start of the last plain character: what follows may combine with it
  for (size_t at = 0; at < text.size();) {
    const utf8::Character c = utf8::character_at(text, at);
    if (is_plain(c.code)) {
      last_plain = at;
      at += c.length;
      continue;
    }
    size_t end = at;
    while (end < text.size()) {
      const utf8::Character next = utf8::character_at(text, end);
      if (is_plain(next.code)) break;
      end += next.length;
    }
    const size_t begin = std::max(copied, last_plain);
    out.append(text.substr(copied, begin - copied));
    append_normalized(out, text.substr(begin, end - begin), form);
    copied = last_plain = at = end;
  }
  out.append(text.substr(copied));
  return out;
}

bool is_numeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return (code >= 0x21 && code <= 0x2F) || (code >= 0x3A && code <= 0x40) ||
           (code >= 0x5B && code <= 0x60) || (code >= 0x7B && code <= 0x7E);
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||  // circled letters
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

void append_lowercase(std::string& text, char32_t code) {
  if (code == 0x130) {  // the only one whose lower case is two characters
    text.append("i\xCC\x87");
    return;
  }
  utf8::append(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

}  // namespace moesaic::unicode
