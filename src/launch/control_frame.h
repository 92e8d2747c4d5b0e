#pragma once
// What is said on the control channel: frames of a kind, some numbers and some texts, in bytes that do not depend on the
// machine. Anybody can connect to a port, so sizes are bounded per kind and checked before they are used.
//
//   frame = length of the rest (u32) | kind (u8) | count of numbers (u8) | count of texts (u32)
//         | numbers (i64 each) | texts (length u32, bytes)                    all little-endian
#include <cstdint>
#include <string>
#include <vector>

#include "comm/tcp/socket.h"

namespace moesaic {

enum class FrameKind : uint8_t {
  hello,  // rank -> 0: magic, version, rank, world size, digest of the configuration, digest of the job's name
  welcome,  // 0 -> rank, when all are there: token of the job; texts: the host of each rank as rank 0 sees it
  refuse,   // 0 -> somebody: why it may not join
  status,  // both ways, again and again: step, moves, limit in ms; texts: operation, what it waits for (RankProgress)
  text,          // rank -> 0: round; texts: where it is called, this rank's part of an all_gather
  texts,         // 0 -> rank: round; texts: everybody's
  ask,           // rank -> 0: number of the question, rank: what is that rank doing?
  answer,        // 0 -> rank: number of the question; text
  abort,         // rank -> 0 -> all: rank that begins it; text: why the job ends
  finished,      // rank -> 0: its work is over
  all_finished,  // 0 -> rank: everybody's is
};
inline constexpr size_t kNumFrameKinds = 11;

struct Frame {
  FrameKind kind{};
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;
};

/// Bytes of the largest text of an all_gather, and of everybody's together.
inline constexpr int64_t kMaxText = int64_t{64} << 20, kMaxTexts = int64_t{1} << 30;

std::string encode(const Frame& frame);

/// Takes a stream of bytes apart. Throws CommError when it is none of frames, or one passes its kind's bounds.
class FrameReader {
 public:
  /// `limit`: bytes of the longest frame that is accepted.
  explicit FrameReader(int64_t limit) : limit_(limit) {}
  void set_limit(int64_t limit) { limit_ = limit; }
  void add(const char* data, size_t size) { buffer_.append(data, size); }
  /// The next whole frame; false when there is none yet.
  bool next(Frame& frame);

 private:
  int64_t limit_;
  std::string buffer_;
  size_t at_ = 0;  // what lies before has been taken
};

/// One end of a control connection. Used by one thread.
class ControlLink {
 public:
  ControlLink(tcp::Socket socket, int64_t limit) : socket_(std::move(socket)), reader_(limit) {}
  void set_limit(int64_t limit) { reader_.set_limit(limit); }
  int descriptor() const { return socket_.descriptor(); }
  const tcp::Socket& socket() const { return socket_; }

  /// Queues a frame (encode()).
  void send(const std::string& encoded) { output_ += encoded; }
  bool wants_to_write() const { return written_ < output_.size(); }
  /// Writes what can be written now.
  void flush();
  /// Reads what is there. The frames of it come out of next(), also when the connection has ended behind them.
  void fill();
  bool next(Frame& frame) { return reader_.next(frame); }
  /// The other end is gone, or has ended its stream.
  bool lost() const { return lost_; }
  void end_sending() { socket_.end_sending(); }

 private:
  tcp::Socket socket_;
  FrameReader reader_;
  std::string output_;
  size_t written_ = 0;
  bool lost_ = false;
};

}  // namespace moesaic
