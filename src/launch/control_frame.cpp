#include "launch/control_frame.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace moesaic {
namespace {

constexpr size_t kHeader = 10;        // length, kind and counts
constexpr size_t kShort = 4096;       // bytes of a frame that holds no text of the job's
constexpr size_t kMessage = 1 << 17;  // of one with a message for people
constexpr size_t kMaxRanks = 1 << 20;
constexpr size_t kTexts = static_cast<size_t>(kMaxTexts) + 8 * kMaxRanks;
constexpr int64_t kReadAtOnce = 1 << 16, kReadPerTurn = 1 << 24;

struct Bounds {
  size_t numbers, min_texts, max_texts, bytes;
};
constexpr std::array<Bounds, kNumFrameKinds> kBounds{{
    {6, 0, 0, kShort},                                  // hello
    {1, 1, kMaxRanks, kTexts},                          // welcome
    {0, 1, 1, kMessage},                                // refuse
    {3, 2, 2, kShort},                                  // status
    {1, 2, 2, static_cast<size_t>(kMaxText) + kShort},  // text
    {1, 1, kMaxRanks, kTexts},                          // texts
    {2, 0, 0, kShort},                                  // ask
    {1, 1, 1, kMessage},                                // answer
    {1, 1, 1, kMessage},                                // abort
    {0, 0, 0, kShort},                                  // finished
    {0, 0, 0, kShort},                                  // all_finished
}};

template <class T>
void append(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
}

template <class T>
T take(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return static_cast<T>(value);
}

void require_frame(bool ok) {
  require<CommError>(ok, "what came is not from a Moesaic job");
}

}  // namespace

std::string encode(const Frame& frame) {
  const Bounds& bounds = kBounds[static_cast<size_t>(frame.kind)];
  MOESAIC_CHECK(frame.numbers.size() == bounds.numbers && frame.texts.size() >= bounds.min_texts &&
                    frame.texts.size() <= bounds.max_texts,
                "kind {}", static_cast<int>(frame.kind));
  std::string out(4, '\0');
  append(out, static_cast<uint8_t>(frame.kind));
  append(out, static_cast<uint8_t>(frame.numbers.size()));
  append(out, static_cast<uint32_t>(frame.texts.size()));
  for (int64_t number : frame.numbers) append(out, number);
  for (const std::string& text : frame.texts) {
    append(out, static_cast<uint32_t>(text.size()));
    out += text;
  }
  require<CommError>(out.size() <= bounds.bytes,
                     "a message of {} bytes is more than the control channel takes ({})", out.size(),
                     bounds.bytes);
  std::string length;
  append(length, static_cast<uint32_t>(out.size() - 4));
  return out.replace(0, 4, length);
}

bool FrameReader::next(Frame& frame) {
  const std::string_view bytes = std::string_view(buffer_).substr(at_);
  if (bytes.size() < kHeader) {
    buffer_.erase(0, at_);
    at_ = 0;
    return false;
  }
  const size_t size = 4 + size_t{take<uint32_t>(bytes, 0)};
  const size_t kind = take<uint8_t>(bytes, 4), numbers = take<uint8_t>(bytes, 5),
               texts = take<uint32_t>(bytes, 6);
  require_frame(kind < kNumFrameKinds);
  const Bounds& bounds = kBounds[kind];
  require_frame(size <= bounds.bytes && size <= static_cast<size_t>(limit_) && numbers == bounds.numbers &&
                texts >= bounds.min_texts && texts <= bounds.max_texts &&
                size >= kHeader + 8 * numbers + 4 * texts);
  if (bytes.size() < size) return false;
  frame = {.kind = static_cast<FrameKind>(kind)};
  size_t at = kHeader;
  for (size_t i = 0; i < numbers; ++i, at += 8) frame.numbers.push_back(take<int64_t>(bytes, at));
  for (size_t i = 0; i < texts; ++i) {
    require_frame(at + 4 <= size);
    const size_t length = take<uint32_t>(bytes, at);
    at += 4;
    require_frame(length <= size - at);
    frame.texts.emplace_back(bytes.substr(at, length));
    at += length;
  }
  require_frame(at == size);
  at_ += size;
  return true;
}

void ControlLink::flush() {
  while (wants_to_write() && !lost_) {
    const int64_t sent =
        socket_.send(output_.data() + written_, static_cast<int64_t>(output_.size() - written_));
    if (sent == 0) return;
    lost_ = sent < 0;
    written_ += static_cast<size_t>(std::max<int64_t>(sent, 0));
  }
  output_.clear();
  written_ = 0;
}

void ControlLink::fill() {
  std::array<char, kReadAtOnce> part;
  for (int64_t read = 0; read < kReadPerTurn && !lost_;) {
    const int64_t received = socket_.receive(part.data(), kReadAtOnce);
    if (received == 0) return;
    if (received < 0) {
      lost_ = true;
      return;
    }
    reader_.add(part.data(), static_cast<size_t>(received));
    read += received;
  }
}

}  // namespace moesaic
