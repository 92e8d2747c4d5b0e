#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "data/tokenizer/pool.h"

namespace moesaic {
namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, Freer<Free>>;

constexpr size_t kMaxPattern = size_t{1} << 16;
constexpr size_t kFirstStack = size_t{32} << 10, kLastStack = size_t{8} << 20;  // of compiled code, in bytes
constexpr uint32_t kHeapLimit = 64 << 10;                                       // KiB

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

/// What one search needs beside the pattern; made once and used again, by one search at a time.
struct Workspace {
  Owned<pcre2_match_data, pcre2_match_data_free> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context, pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack{
      pcre2_jit_stack_create(kFirstStack, kLastStack, nullptr)};

  Workspace() {
    require<ConfigError>(data && context && stack, "no memory for a regular expression");
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_heap_limit(context.get(), kHeapLimit);
  }
};

}  // namespace

struct Regex::Compiled {
  std::string where;
  Owned<pcre2_code, pcre2_code_free> code;
  Pool<Workspace> workspaces;
};

Regex::Regex(std::string_view pattern, const std::string& where) : compiled_(std::make_unique<Compiled>()) {
  require<ConfigError>(pattern.size() <= kMaxPattern,
                       "{}: a regular expression of {} bytes; at most {} are supported", where,
                       pattern.size(), kMaxPattern);
  const std::string translated = translate_pattern(pattern, where);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  require<ConfigError>(context != nullptr, "no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 64);
  int error = 0;
  PCRE2_SIZE at = 0;
  // Multi-line: in Ruby's syntax ^ and $ are always those of a line.
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                      &error, &at, context.get()));
  require<ConfigError>(compiled_->code != nullptr,
                       "{}: the regular expression {} is not supported: {} (at {})", where, pattern,
                       message_of(error), at);
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);  // where it cannot, the interpreter runs
  compiled_->where = where;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find_all(std::string_view text, TextRange range, std::vector<TextRange>& matches) const {
  const auto workspace = compiled_->workspaces.take();
  const std::string_view part = text.substr(range.begin, range.end - range.begin);
  // Going back over the whole text a few times is normal (a long run of spaces), without end is not.
  const auto limit = static_cast<uint32_t>(std::min<size_t>(10'000'000 + 64 * part.size(), UINT32_MAX));
  pcre2_set_match_limit(workspace->context.get(), limit);
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(workspace->data.get());
  size_t at = 0;
  size_t last_end = SIZE_MAX;
  while (at <= part.size()) {
    const int result =
        pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(part.data()), part.size(), at,
                    PCRE2_NO_UTF_CHECK, workspace->data.get(), workspace->context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    require<ConfigError>(result >= 0 && found[0] <= found[1] && found[0] >= at,
                         "{}: a regular expression failed on a text of {} bytes: {}", compiled_->where,
                         part.size(), result < 0 ? message_of(result) : "matches overlap");
    // An empty match right behind another one does not count.
    if (found[0] != found[1] || found[0] != last_end)
      matches.push_back({range.begin + found[0], range.begin + found[1]});
    last_end = found[1];
    at = found[1];
    if (found[0] == found[1]) {
      do ++at;
      while (at < part.size() && (static_cast<unsigned char>(part[at]) & 0xC0) == 0x80);
    }
  }
}

}  // namespace moesaic
