#include "data/tokenizer/normalizers.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/json_parts.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

using nlohmann::json;

std::string replaced(const std::string& text, const json_parts::Finder& find, const std::string& by) {
  std::vector<TextRange> matches;
  find(text, {0, text.size()}, matches);
  std::string out;
  size_t copied = 0;
  for (const TextRange match : matches) {
    out.append(text, copied, match.begin - copied);
    out.append(by);
    copied = match.end;
  }
  return out.append(text, copied);
}

std::string stripped(const std::string& text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const utf8::Character c = utf8::character_at(text, begin);
    if (!utf8::is_space(c.code)) break;
    begin += c.length;
  }
  while (right && end > begin) {
    const size_t before = utf8::character_before(text, end);
    if (!utf8::is_space(utf8::character_at(text, before).code)) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

std::string lowercase(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const utf8::Character c = utf8::character_at(text, at);
    unicode::append_lowercase(out, c.code);
    at += c.length;
  }
  return out;
}

}  // namespace

Normalizers::Normalizers(const json& value, const std::string& where) {
  if (!value.is_null()) add(value, where);
}

void Normalizers::add(const json& value, const std::string& where) {
  using json_parts::flag;
  const std::string type = json_parts::type_of(value, where);
  const auto form = [&](unicode::Form to) {
    steps_.emplace_back([to](std::string& text) { text = unicode::normalize(text, to); });
  };
  if (type == "Sequence") {
    for (const json& step : json_parts::members(value, "normalizers", where)) add(step, where);
  } else if (type == "Prepend") {
    const std::string prefix = string_member(value, "prepend", where);
    steps_.emplace_back([prefix](std::string& text) {
      if (!text.empty()) text.insert(0, prefix);
    });
  } else if (type == "Replace") {
    const auto find = json_parts::pattern(value, where);
    const std::string by = string_member(value, "content", where);
    steps_.emplace_back([find, by](std::string& text) { text = replaced(text, find, by); });
  } else if (type == "Strip") {
    const bool left = flag(value, "strip_left", true, where), right = flag(value, "strip_right", true, where);
    steps_.emplace_back([left, right](std::string& text) { text = stripped(text, left, right); });
  } else if (type == "Lowercase") {
    steps_.emplace_back([](std::string& text) { text = lowercase(text); });
  } else if (type == "ByteLevel") {
    steps_.emplace_back([](std::string& text) { text = byte_alphabet::write(text); });
  } else if (type == "NFC") {
    form(unicode::Form::nfc);
  } else if (type == "NFD") {
    form(unicode::Form::nfd);
  } else if (type == "NFKC") {
    form(unicode::Form::nfkc);
  } else if (type == "NFKD") {
    form(unicode::Form::nfkd);
  } else {
    json_parts::refuse("normalizer", type, where);
  }
}

std::string Normalizers::apply(std::string_view text) const {
  std::string out(text);
  for (const auto& step : steps_) step(out);
  return out;
}

}  // namespace moesaic
