// Ruby's syntax, as Oniguruma reads it, to PCRE2's.
#include <algorithm>

#include "base/error.h"
#include "data/tokenizer/regex.h"

namespace moesaic {
namespace {

constexpr std::string_view kSpace =
    R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        char_class();
      } else if (c == '(' && peek(1) == '?') {
        group();
      } else {
        if (c == '}' && peek(1) == '+')
          refuse("a + behind an interval");  // Ruby: a repetition; PCRE2: possessive
        if (c == '{' && peek(1) == ',') refuse("an interval without its lower bound");
        out_ += c;
        ++at_;
      }
    }
    return out_;
  }

 private:
  char peek(size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  [[noreturn]] void refuse(const std::string& what) const {
    fail<ConfigError>("{}: the regular expression {} uses {}, which is not supported", where_, pattern_,
                      what);
  }

  void put_class(std::string_view items, bool inside, bool negated) {
    if (inside) {
      out_ += items;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += items;
      out_ += "]";
    }
  }

  void escape(bool inside) {
    const char c = peek(1);
    if (c == '\0') refuse("a \\ at its end");
    at_ += 2;
    switch (c) {
      case 's':
        return put_class(kSpace, inside, false);
      case 'S':
        if (inside) {
          out_ += "\\S\\x{180E}";
          return;
        }
        return put_class(kSpace, inside, true);
      case 'w':
        return put_class(kWord, inside, false);
      case 'W':
        if (inside) refuse("\\W in a class");
        return put_class(kWord, inside, true);
      default:
        break;
    }
    constexpr std::string_view kSame = "ntrfvaedDpPxAzZRX";  // the same in both, as are escaped signs
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && (kSame.find(c) == std::string_view::npos || (inside && (c == 'R' || c == 'X'))))
      refuse(std::string("\\") + c);
    if (c >= '0' && c <= '9') refuse("a back-reference or an octal number");
    if ((c == 'p' || c == 'P') && peek(0) == '{') {
      const size_t end = std::min(pattern_.find('}', at_), pattern_.size() - 1);
      out_ += '\\';
      out_ += c;
      out_ += pattern_.substr(at_, end + 1 - at_);
      at_ = end + 1;
      return;
    }
    if (c == 'v') {  // PCRE2: any vertical space; Ruby: VT
      out_ += "\\x0B";
      return;
    }
    out_ += '\\';
    out_ += c;
  }

  void char_class() {
    out_ += '[';
    ++at_;
    if (peek(0) == '^') {
      out_ += '^';
      ++at_;
    }
    if (peek(0) == ']') refuse("a class that begins with ]");
    while (peek(0) != ']') {
      const char c = peek(0);
      if (at_ >= pattern_.size()) refuse("a class without an end");
      if (c == '\\') {
        escape(true);
        continue;
      }
      if (c == '&' && peek(1) == '&') refuse("an intersection of classes");
      if (c == '[') refuse("a class in a class");
      out_ += c;
      ++at_;
    }
    out_ += ']';
    ++at_;
  }

  /// "(?": groups and looks are the same in both; of the flags, those that mean the same are.
  void group() {
    const char kind = peek(2);
    if (kind == '#') refuse("a comment");
    const bool look = kind == '=' || kind == '!' || kind == ':' || kind == '>' ||
                      (kind == '<' && (peek(3) == '=' || peek(3) == '!'));
    if (!look) {
      size_t i = 2;
      while (peek(i) == 'i' || peek(i) == '-') ++i;
      const bool for_all =
          peek(i) == ')' && at_ == 0;  // further on, the two disagree about how far it reaches
      if (i == 2 || (peek(i) != ':' && !for_all)) refuse(std::string("(?") + kind);
    }
    out_ += "(?";
    at_ += 2;
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace moesaic
