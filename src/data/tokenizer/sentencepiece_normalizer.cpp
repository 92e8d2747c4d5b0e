#include "data/tokenizer/sentencepiece_normalizer.h"

#include <algorithm>

#include "data/tokenizer/utf8.h"
#include "data/tokenizer/words.h"

namespace moesaic {

SentencePieceNormalizer::Prefix SentencePieceNormalizer::prefix_of(std::string_view text) const {
  if (!user_defined_.empty())
    if (const auto match = user_defined_.match_at(text, 0)) return {text.substr(0, match->end), match->end};
  if (const auto rule = charsmap_.longest(text)) return {rule->replacement, rule->length};
  const size_t length = utf8::character_at(text, 0).length;
  return {text.substr(0, length), length};
}

std::string SentencePieceNormalizer::apply(std::string_view text) const {
  const bool trim = file_.remove_extra_whitespaces;
  const std::string_view space = file_.escape_whitespaces ? kSpaceMark : " ";
  while (trim && !text.empty()) {
    const Prefix prefix = prefix_of(text);
    if (prefix.to != " ") break;
    text.remove_prefix(prefix.length);
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + 16);
  if (file_.add_dummy_prefix && !file_.whitespace_as_suffix) out += space;
  const bool by_character = trim || !file_.charsmap.empty() || !user_defined_.empty();
  bool after_space = trim;
  while (!text.empty()) {
    // Without rules for characters, everything up to a space is taken at once.
    const Prefix prefix = by_character ? prefix_of(text)
                          : text[0] == ' '
                              ? Prefix{" ", 1}
                              : Prefix{text.substr(0, text.find(' ')), std::min(text.find(' '), text.size())};
    std::string_view to = prefix.to;
    while (after_space && to.starts_with(' ')) to.remove_prefix(1);
    for (const char byte : to) {
      if (byte == ' ') {
        out += space;
      } else {
        out += byte;
      }
    }
    if (!to.empty()) after_space = trim && to.ends_with(' ');
    text.remove_prefix(prefix.length);
  }
  while (trim && std::string_view(out).ends_with(space)) out.erase(out.size() - space.size());
  if (file_.add_dummy_prefix && file_.whitespace_as_suffix) out += space;
  return out;
}

}  // namespace moesaic
