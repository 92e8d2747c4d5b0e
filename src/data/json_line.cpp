#include "data/json_line.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr int kMaxDepth = 64;

void append_utf8(std::string& to, uint32_t code) {
  const auto put = [&](uint32_t byte) { to.push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      tail(12);
    }
    tail(6);
  }
  tail(0);
}

class Scanner {
 public:
  explicit Scanner(std::string_view line) : begin_(line.data()), at_(begin_), end_(begin_ + line.size()) {}

  std::string_view find(std::string_view key, std::string& scratch) {
    std::string_view found;
    bool is_found = false;
    std::string name_scratch;
    blank();
    expect('{', "an object");
    blank();
    if (!take('}')) do {
        const std::string_view name = member_name(name_scratch);
        blank();
        if (name != key) {
          skip_value();
        } else {
          if (is_found) broken("the key occurs twice");
          if (peek() != '"') broken("the key does not hold a string");
          found = string(scratch);
          is_found = true;
        }
        blank();
      } while (another('}'));
    blank();
    if (at_ != end_) broken("expected nothing after the object");
    require<IoError>(is_found, "it has no key \"{}\"", key);
    return found;
  }

 private:
  [[noreturn]] void broken(std::string_view what) const {
    fail<IoError>("{} (at byte {} of the line)", what, at_ - begin_ + 1);
  }

  int peek() const { return at_ < end_ ? static_cast<unsigned char>(*at_) : -1; }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, std::string_view what) {
    if (!take(c)) broken(fmt::format("expected {}", what));
  }
  void blank() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }
  /// After an element: whether a comma promises another, or `close` ends the container.
  bool another(char close) {
    if (take(close)) return false;
    if (!take(',')) broken(close == '}' ? "expected , or }" : "expected , or ]");
    blank();
    return true;
  }

  std::string_view member_name(std::string& scratch) {
    if (peek() != '"') broken("expected a key in quotes");
    const std::string_view name = string(scratch);
    blank();
    expect(':', ": after a key");
    return name;
  }

  /// From the opening quote to behind the closing one.
  std::string_view string(std::string& scratch) {
    const char* run = ++at_;
    bool escaped = false;
    for (;;) {
      skip_plain();
      const int c = peek();
      if (c == '"') break;
      if (c < 0) broken("a string has no end");
      if (c < 0x20) broken("a string holds a control character that is not escaped");
      if (c >= 0x80) {
        skip_utf8();
        continue;
      }
      if (!escaped) scratch.clear();
      escaped = true;
      scratch.append(run, at_);
      ++at_;
      escape(scratch);
      run = at_;
    }
    const std::string_view rest(run, static_cast<size_t>(at_ - run));
    ++at_;
    if (!escaped) return rest;
    scratch.append(rest);
    return scratch;
  }

  /// Passes printable ASCII other than quote and backslash, eight bytes at a time.
  void skip_plain() {
    constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x80 * kOnes;
    while (end_ - at_ >= 8) {
      uint64_t word;
      std::memcpy(&word, at_, 8);
      const auto has_zero = [](uint64_t x) {
        return (x - kOnes) & ~x;
      };  // high bit of a zero byte; others may follow it
      const uint64_t control = (word - 0x20 * kOnes) & ~word;  // high bit of a byte below 0x20
      if ((word | control | has_zero(word ^ '"' * kOnes) | has_zero(word ^ '\\' * kOnes)) & kHigh) break;
      at_ += 8;
    }
    while (at_ < end_ && *at_ >= 0x20 && *at_ != '"' && *at_ != '\\') ++at_;
  }

  /// One character outside ASCII: Unicode 15, table 3-7.
  void skip_utf8() {
    const auto byte = [&](int64_t i) { return at_ + i < end_ ? static_cast<unsigned char>(at_[i]) : 0u; };
    const unsigned first = byte(0), second = byte(1);
    int length = 0;
    unsigned low = 0x80, high = 0xbf;
    if (first >= 0xc2 && first <= 0xdf) {
      length = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
      length = 3;
      if (first == 0xe0) low = 0xa0;
      if (first == 0xed) high = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
      length = 4;
      if (first == 0xf0) low = 0x90;
      if (first == 0xf4) high = 0x8f;
    }
    bool good = length > 0 && second >= low && second <= high;
    for (int i = 2; i < length; ++i) good = good && (byte(i) & 0xc0) == 0x80;
    if (!good) broken("a string is not UTF-8");
    at_ += length;
  }

  void escape(std::string& to) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const int c = peek();
    ++at_;
    if (c == 'u') return unicode_escape(to);
    const size_t index = c < 0 ? kNames.npos : kNames.find(static_cast<char>(c));
    if (index == kNames.npos) broken("an unknown escape");
    to.push_back(kMeanings[index]);
  }

  void unicode_escape(std::string& to) {
    uint32_t code = four_digits();
    if (code >= 0xd800 && code < 0xdc00) {
      uint32_t second = 0;
      if (take('\\') && take('u')) second = four_digits();
      if (second < 0xdc00 || second > 0xdfff) broken("half of a surrogate pair");
      code = 0x10000 + (code - 0xd800) * 0x400 + (second - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      broken("half of a surrogate pair");
    }
    append_utf8(to, code);
  }

  uint32_t four_digits() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const int c = peek();
      const int lower = c | 0x20;
      if (c >= '0' && c <= '9') {
        code = code * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        broken("\\u needs four hexadecimal digits");
      }
    }
    return code;
  }

  void digits() {
    if (peek() < '0' || peek() > '9') broken("a malformed number");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  void number() {
    take('-');
    if (!take('0')) digits();
    if (take('.')) digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      digits();
    }
  }

  void word(std::string_view text) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(text)) broken("expected a value");
    at_ += text.size();
  }

  void scalar() {
    switch (peek()) {
      case '"':
        string(unused_);
        break;
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        if (peek() != '-' && (peek() < '0' || peek() > '9')) broken("expected a value");
        number();
    }
  }

  /// A value of any kind; nested ones without recursion.
  void skip_value() {
    uint64_t is_object = 0;  // a bit per open container, the innermost lowest
    int depth = 0;
    for (;;) {
      blank();
      const bool object = peek() == '{';
      bool ended = true;
      if (object || peek() == '[') {
        if (++depth >= kMaxDepth) broken("more than 64 levels");
        is_object = is_object << 1 | (object ? 1 : 0);
        ++at_;
        blank();
        if (take(object ? '}' : ']')) {
          --depth, is_object >>= 1;
        } else {
          ended = false;
          if (object) member_name(unused_);
        }
      } else {
        scalar();
      }
      while (ended) {  // the value before this point
        if (depth == 0) return;
        blank();
        const bool in_object = (is_object & 1) != 0;
        if (another(in_object ? '}' : ']')) {
          if (in_object) member_name(unused_);
          ended = false;
        } else {
          --depth, is_object >>= 1;
        }
      }
    }
  }

  const char *begin_, *at_, *end_;
  std::string unused_;
};

}  // namespace

std::string_view json_string(std::string_view line, std::string_view key, std::string& scratch) {
  return Scanner(line).find(key, scratch);
}

}  // namespace moesaic
