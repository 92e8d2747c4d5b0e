#include "data/tokenizer/stream_decoder.h"

#include <algorithm>

#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

constexpr size_t kContext = 8;  // tokens: more than any decoder looks back
constexpr size_t kMost = 64;    // tokens decoded at once, so that the whole costs linear time

/// Length of text without a character at its end that could still become whole.
size_t whole_length(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t at = text.size() - back;
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;  // not where a character begins
    const utf8::Sequence sequence = utf8::sequence_at(text, at);
    return sequence.cut && sequence.length == back ? at : text.size();
  }
  return text.size();
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::span<const int32_t> context)
    : tokenizer_(tokenizer), ids_(context.begin(), context.end()) {
  shorten();
  done_ = tokenizer_.decode(ids_).size();
}

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_);
  const size_t whole = std::max(whole_length(text), done_);
  std::string added = text.size() > done_ ? text.substr(done_, whole - done_) : std::string();
  done_ = std::max(done_, std::min(whole, text.size()));
  if (done_ == text.size() && ids_.size() >= kMost) {
    shorten();
    done_ = tokenizer_.decode(ids_).size();
  }
  return added;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_.decode(ids_);
  std::string rest = text.substr(std::min(done_, text.size()));
  done_ = text.size();
  return rest;
}

void StreamDecoder::shorten() {
  if (ids_.size() > kContext) ids_.erase(ids_.begin(), ids_.end() - static_cast<std::ptrdiff_t>(kContext));
}

}  // namespace moesaic
