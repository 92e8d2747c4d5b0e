#include "data/tokenizer/pre_tokenizers.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/json_parts.h"
#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

using nlohmann::json;

// What ByteLevel splits by: GPT-2's pattern.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Writes each piece anew by write(piece, out), which appends.
template <class Write>
void rewrite(Pieces& pieces, Write&& write) {
  pieces.next_text.clear();
  for (TextRange& range : pieces.ranges) {
    const size_t begin = pieces.next_text.size();
    write(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), range,
          pieces.next_text);
    range = {begin, pieces.next_text.size()};
  }
  pieces.text.swap(pieces.next_text);
}

void map_bytes(Pieces& pieces) {
  rewrite(pieces,
          [](std::string_view piece, TextRange, std::string& out) { out += byte_alphabet::write(piece); });
}

void prefix_space(Pieces& pieces) {
  rewrite(pieces, [](std::string_view piece, TextRange, std::string& out) {
    if (!piece.starts_with(' ')) out += ' ';
    out += piece;
  });
}

enum class Prepend { always, first, never };

Prepend scheme_of(const json& value, const std::string& where) {
  const bool add_prefix = json_parts::flag(value, "add_prefix_space", true, where);  // before prepend_scheme
  const std::string scheme =
      json_parts::text(value, "prepend_scheme", add_prefix ? "always" : "never", where);
  if (scheme == "always") return Prepend::always;
  if (scheme == "first") return Prepend::first;
  if (scheme == "never") return Prepend::never;
  json_parts::refuse("prepend_scheme", scheme, where);
}

void mark_spaces(Pieces& pieces, const std::string& mark, Prepend prepend) {
  const bool at_start = pieces.at_start;
  rewrite(pieces, [&](std::string_view piece, TextRange range, std::string& out) {
    const bool wanted =
        prepend == Prepend::always || (prepend == Prepend::first && at_start && range.begin == 0);
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(mark)) out += mark;
    for (const char byte : piece) {
      if (byte == ' ') {
        out += mark;
      } else {
        out += byte;
      }
    }
  });
}

}  // namespace

PreTokenizers::PreTokenizers(const json& value, const std::string& where) {
  if (!value.is_null()) add(value, where);
}

void PreTokenizers::write_bytes() {
  if (ends_in_bytes_) steps_.emplace_back(map_bytes);
  ends_in_bytes_ = false;
}

void PreTokenizers::add_step(std::function<void(Pieces&)> step) {
  write_bytes();  // not the last step after all
  steps_.push_back(std::move(step));
}

void PreTokenizers::add(const json& value, const std::string& where) {
  using json_parts::flag;
  const std::string type = json_parts::type_of(value, where);
  const auto split_by = [&](json_parts::Finder find, SplitBehavior behavior, bool invert) {
    add_step([find = std::move(find), behavior, invert](Pieces& pieces) {
      split_pieces(pieces, find, behavior, invert);
    });
  };
  const auto split_by_regex = [&](std::string_view pattern, SplitBehavior behavior, bool invert) {
    const auto regex = std::make_shared<Regex>(pattern, where);
    split_by([regex](std::string_view text, TextRange range,
                     std::vector<TextRange>& found) { regex->find_all(text, range, found); },
             behavior, invert);
  };
  if (type == "Sequence") {
    for (const json& step : json_parts::members(value, "pretokenizers", where)) add(step, where);
  } else if (type == "Split") {
    split_by(json_parts::pattern(value, where), behavior_of(value, where),
             flag(value, "invert", false, where));
  } else if (type == "ByteLevel") {
    write_bytes();
    if (flag(value, "add_prefix_space", true, where)) add_step(prefix_space);
    if (flag(value, "use_regex", true, where))
      split_by_regex(kByteLevelPattern, SplitBehavior::isolated, false);
    ends_in_bytes_ = true;
  } else if (type == "Metaspace") {
    const std::string mark = string_member(value, "replacement", where);
    require<IoError>(!mark.empty() && utf8::character_at(mark, 0).length == mark.size(),
                     "{}: \"replacement\" must be one character", where);
    const Prepend prepend = scheme_of(value, where);
    add_step([mark, prepend](Pieces& pieces) { mark_spaces(pieces, mark, prepend); });
    if (!flag(value, "split", true, where)) return;
    const auto find = json_parts::pattern({{"pattern", {{"String", mark}}}}, where);
    split_by(find, SplitBehavior::merged_with_next, false);
  } else if (type == "Digits") {
    const bool each = flag(value, "individual_digits", false, where);
    split_by(character_finder(unicode::is_numeric),
             each ? SplitBehavior::isolated : SplitBehavior::contiguous, false);
  } else if (type == "Punctuation") {
    const bool named = value.contains("behavior");
    split_by(character_finder(unicode::is_punctuation),
             named ? behavior_of(value, where) : SplitBehavior::isolated, false);
  } else if (type == "Whitespace") {
    split_by_regex(R"(\w+|[^\w\s]+)", SplitBehavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    split_by(character_finder(utf8::is_space), SplitBehavior::removed, false);
  } else {
    json_parts::refuse("pre_tokenizer", type, where);
  }
}

void PreTokenizers::apply(Pieces& pieces) const {
  for (const auto& step : steps_) step(pieces);
}

}  // namespace moesaic
