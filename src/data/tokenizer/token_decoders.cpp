#include "data/tokenizer/token_decoders.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/json_parts.h"

namespace moesaic {
namespace {

using nlohmann::json;

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(what); found != std::string_view::npos; found = text.find(what, at)) {
    out.append(text.substr(at, found - at)).append(by);
    at = found + what.size();
  }
  return out.append(text.substr(at));
}

/// The byte of "<0x41>".
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned value = 0;
  const char* end = token.data() + 5;
  const auto [at, error] = std::from_chars(token.data() + 3, end, value, 16);
  if (error != std::errc() || at != end) return std::nullopt;
  return static_cast<char>(value);
}

std::string stripped(std::string_view token, std::string_view what, int64_t from_start, int64_t from_end) {
  for (; from_start > 0 && token.starts_with(what); --from_start) token.remove_prefix(what.size());
  for (; from_end > 0 && token.ends_with(what); --from_end) token.remove_suffix(what.size());
  return std::string(token);
}

/// Neighbouring byte tokens become one.
void join_bytes(std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  bool in_bytes = false;
  for (std::string& token : tokens) {
    const auto byte = byte_of(token);
    if (byte && in_bytes) {
      out.back() += *byte;
    } else if (byte) {
      out.emplace_back(1, *byte);
    } else {
      out.push_back(std::move(token));
    }
    in_bytes = byte.has_value();
  }
  tokens = std::move(out);
}

std::string joined(const std::vector<std::string>& tokens, std::string_view between) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return text;
}

}  // namespace

TokenDecoders::TokenDecoders(const json& value, const std::string& where)
    : between_(value.is_null() ? " " : "") {
  if (!value.is_null()) add(value, where);
}

void TokenDecoders::add(const json& value, const std::string& where) {
  const std::string type = json_parts::type_of(value, where);
  const auto each = [&](std::function<std::string(const std::string&)> change) {
    steps_.emplace_back([change = std::move(change)](Tokens& tokens) {
      for (std::string& token : tokens) token = change(token);
    });
  };
  if (type == "Sequence") {
    for (const json& step : json_parts::members(value, "decoders", where)) add(step, where);
  } else if (type == "ByteLevel") {
    each([](const std::string& token) { return byte_alphabet::read(token).value_or(token); });
  } else if (type == "ByteFallback") {
    steps_.emplace_back(join_bytes);
  } else if (type == "Fuse") {
    steps_.emplace_back([](Tokens& tokens) { tokens = {joined(tokens, "")}; });
  } else if (type == "Replace") {
    const std::string what = string_member(member(value, "pattern", where), "String", where);
    require<IoError>(!what.empty(), "{}: an empty pattern", where);
    const std::string by = string_member(value, "content", where);
    each([what, by](const std::string& token) { return replaced(token, what, by); });
  } else if (type == "Strip") {
    const std::string what = string_member(value, "content", where);
    require<IoError>(!what.empty(), "{}: nothing to strip", where);
    const int64_t start = int_member(value, "start", where), stop = int_member(value, "stop", where);
    each([what, start, stop](const std::string& token) { return stripped(token, what, start, stop); });
  } else if (type == "Metaspace") {
    const std::string mark = string_member(value, "replacement", where);
    require<IoError>(!mark.empty(), "{}: an empty \"replacement\"", where);
    const bool add_prefix = json_parts::flag(value, "add_prefix_space", true, where);
    const bool keep =
        json_parts::text(value, "prepend_scheme", add_prefix ? "always" : "never", where) == "never";
    steps_.emplace_back([mark, keep](Tokens& tokens) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replaced(tokens[i], mark, i == 0 && !keep ? "" : " ");
    });
  } else {
    json_parts::refuse("decoder", type, where);
  }
}

std::string TokenDecoders::apply(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step(tokens);
  return joined(tokens, between_);
}

}  // namespace moesaic
