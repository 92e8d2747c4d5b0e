#pragma once
// Regular expressions as tokenizer files mean them: written for Oniguruma (Ruby's syntax, which Hugging Face's
// tokenizers use) and run by PCRE2, compiled to machine code where it can. What the two read differently is
// translated, or refused.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moesaic {

/// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

class Regex {
 public:
  /// ConfigError, beginning with `where`, for a pattern that is broken, or that uses what is not supported.
  Regex(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Appends the matches in text.substr(range), which is valid UTF-8, to `matches`, as offsets in text. Neither
  /// look-behind nor look-ahead sees what is outside of range. Thread-safe. ConfigError for a pattern that goes
  /// back and forth without end.
  void find_all(std::string_view text, TextRange range, std::vector<TextRange>& matches) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// The pattern in PCRE2's syntax; throws as Regex does. PCRE2 and Oniguruma disagree about:
///   \s \S    PCRE2 takes U+180E for a space
///   \w \W    Oniguruma: letters, marks, decimal digits, connectors; PCRE2: letters, numbers, underscore
/// Refused, since they mean other things: \h \H \b \B \N \O \K \G \g \k, && and [ inside a class, flags but (?i).
std::string translate_pattern(std::string_view pattern, const std::string& where);

}  // namespace moesaic
