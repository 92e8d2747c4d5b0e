#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "comm/meeting/mover.h"
#include "comm/messages/messenger.h"
#include "comm/numbered_communicator.h"

namespace moesaic::messages {
namespace {

std::byte* bytes_at(void* data, int64_t offset = 0) {
  return static_cast<std::byte*>(data) + offset;
}
const std::byte* bytes_at(const void* data, int64_t offset = 0) {
  return static_cast<const std::byte*>(data) + offset;
}

int64_t bytes_of(const std::vector<BlockCopy>& copies) {
  return std::accumulate(copies.begin(), copies.end(), int64_t{0},
                         [](int64_t sum, const BlockCopy& c) { return sum + c.outer * c.rows * c.width; });
}

/// The pieces that go from rank `from` to rank `to`, side by side: out of the send buffer of one, into the receive buffer of
/// the other.
void pack(std::byte* packed, const std::byte* send, const std::vector<BlockCopy>& copies, size_t to) {
  for (const BlockCopy& c : copies)
    for (int64_t o = 0; o < c.outer; ++o)
      for (int64_t i = 0; i < c.rows; ++i, packed += c.width)
        std::memcpy(packed, send + c.send_offset[to] + o * c.send_outer + i * c.send_pitch,
                    static_cast<size_t>(c.width));
}
void unpack(const std::byte* packed, std::byte* receive, const std::vector<BlockCopy>& copies, size_t from) {
  for (const BlockCopy& c : copies)
    for (int64_t o = 0; o < c.outer; ++o)
      for (int64_t i = 0; i < c.rows; ++i, packed += c.width)
        std::memcpy(receive + c.recv_offset[from] + o * c.recv_outer + i * c.recv_pitch, packed,
                    static_cast<size_t>(c.width));
}

/// Sums are those of thread ranks (Mover::sum), over parts that were gathered in rank order: equal to the last bit.
class MessageCommunicator : public NumberedCommunicator {
 public:
  MessageCommunicator(std::shared_ptr<Messenger> messenger, uint64_t group, std::vector<int64_t> ranks,
                      size_t me)
      : NumberedCommunicator(static_cast<int64_t>(me), static_cast<int64_t>(ranks.size())),
        messenger_(std::move(messenger)),
        group_(group),
        ranks_(std::move(ranks)),
        me_(me),
        mover_(make_cpu_mover()) {}

  Pending all_gather(const Call& call, const void* send, void* recv, int64_t bytes) override {
    auto request = collective(call, {Kind::all_gather, bytes});
    for (int64_t p = 0; p < size(); ++p)
      request.parts[static_cast<size_t>(p)] = {bytes_at(send), bytes, bytes_at(recv, p * bytes), bytes};
    return start(std::move(request));
  }
  Pending reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    return reduce(call, Kind::reduce_scatter, send, recv, count, count, type);
  }
  Pending all_reduce(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    MOESAIC_CHECK(send != recv, "all_reduce is not in place");
    return reduce(call, Kind::all_reduce, send, recv, count, 0, type);
  }
  Pending all_to_all(const Call& call, const void* send, void* recv, int64_t bytes) override {
    auto request = collective(call, {Kind::all_to_all, bytes});
    for (int64_t p = 0; p < size(); ++p)
      request.parts[static_cast<size_t>(p)] = {bytes_at(send, p * bytes), bytes, bytes_at(recv, p * bytes),
                                               bytes};
    return start(std::move(request));
  }
  Pending exchange_parts(const Call& call, const void* send, void* recv, int64_t bytes) override {
    auto request = collective(call, {Kind::exchange_parts, bytes});
    int64_t at = 0;
    for (size_t p = 0; p < ranks_.size(); ++p) {
      if (p == me_) continue;
      request.parts[p] = {bytes_at(send, static_cast<int64_t>(p) * bytes), bytes, bytes_at(recv, at), bytes};
      at += bytes;
    }
    return start(std::move(request));
  }
  Pending all_to_all_blocks(const Call& call, const void* send, void* recv,
                            const std::vector<BlockCopy>& copies) override {
    const int64_t bytes = bytes_of(copies);
    auto request = collective(call, {Kind::all_to_all_blocks, bytes});
    request.staging = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(2 * size() * bytes));
    std::byte* received = request.staging.get() + size() * bytes;
    for (size_t p = 0; p < ranks_.size(); ++p) {
      const int64_t at = static_cast<int64_t>(p) * bytes;
      pack(request.staging.get() + at, bytes_at(send), copies, p);
      request.parts[p] = {request.staging.get() + at, bytes, received + at, bytes};
    }
    request.finish = [received, bytes, recv, copies, members = ranks_.size()] {
      for (size_t p = 0; p < members; ++p)
        unpack(received + static_cast<int64_t>(p) * bytes, bytes_at(recv), copies, p);
    };
    return start(std::move(request));
  }
  Pending all_to_all_rows(const Call& call, const void* send, const int32_t* send_offsets, void* recv,
                          const int32_t* recv_offsets, int64_t recv_rows, int64_t row_bytes) override {
    auto request = collective(call, {Kind::all_to_all_rows, row_bytes});
    for (size_t p = 0; p < ranks_.size(); ++p) {
      const int64_t first = send_offsets[p], at = recv_offsets[p];
      const int64_t rows =
          std::clamp<int64_t>(recv_offsets[p + 1] - at, 0, std::max<int64_t>(recv_rows - at, 0));
      request.parts[p] = {bytes_at(send, first * row_bytes), (send_offsets[p + 1] - first) * row_bytes,
                          bytes_at(recv, at * row_bytes), rows * row_bytes};
    }
    return start(std::move(request));
  }
  Pending broadcast(const Call& call, const void* send, void* recv, int64_t bytes, int64_t root) override {
    auto request = collective(call, {Kind::broadcast, bytes, root});
    if (rank() == root) {
      for (Part& part : request.parts) part = {bytes_at(send), bytes, nullptr, 0};
      request.parts[me_] = {bytes_at(send), bytes, bytes_at(recv), bytes};
    } else {
      request.parts[static_cast<size_t>(root)] = {nullptr, 0, bytes_at(recv), bytes};
    }
    return start(std::move(request));
  }
  Pending barrier(const Call& call) override { return start(collective(call, {Kind::barrier, 0})); }
  Pending send(const Call& call, const void* data, int64_t bytes, int64_t destination) override {
    return start(
        message(call, bytes, destination, OperationKey::message_out, {bytes_at(data), bytes, nullptr, 0}));
  }
  Pending receive(const Call& call, void* data, int64_t bytes, int64_t source) override {
    return start(message(call, bytes, source, OperationKey::message_in, {nullptr, 0, bytes_at(data), bytes}));
  }

 private:
  using Request = Operation::Request;

  Request collective(const Call& call, const Offer& offer) const {
    return {.key = {.group = group_, .sequence = call.sequence},
            .ranks = ranks_,
            .me = me_,
            .offer = offer,
            .parts = std::vector<Part>(ranks_.size())};
  }
  Request message(const Call& call, int64_t bytes, int64_t other, OperationKey::Channel way,
                  const Part& part) const {
    MOESAIC_CHECK(other != rank());
    const int64_t peer = ranks_[static_cast<size_t>(other)];
    return {.key = {group_, way, peer, call.sequence},
            .ranks = {ranks_[me_], peer},
            .me = 0,
            .offer = {Kind::message, bytes},
            .parts = {{}, part}};
  }
  /// Every rank takes its part of everybody's send buffer (`pitch` apart) and sums.
  Pending reduce(const Call& call, Kind kind, const void* send, void* recv, int64_t count, int64_t pitch,
                 DType type) {
    const int64_t bytes = count * size_of(type), members = size();
    auto request = collective(call, {kind, bytes});
    request.staging = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(members * bytes));
    std::vector<const std::byte*> sources;
    for (int64_t p = 0; p < members; ++p) {
      std::byte* staged = request.staging.get() + p * bytes;
      request.parts[static_cast<size_t>(p)] = {bytes_at(send, p * pitch * size_of(type)), bytes, staged,
                                               bytes};
      sources.push_back(staged);
    }
    // This rank's own part stays where it is.
    request.parts[me_] = {};
    sources[me_] = bytes_at(send, rank() * pitch * size_of(type));
    request.finish = [this, recv, sources = std::move(sources), count, type] {
      mover_->sum(nullptr, recv, sources, 0, count, type);
    };
    return start(std::move(request));
  }
  Pending start(Request request) {
    const auto operation = std::make_shared<Operation>(messenger_, std::move(request));
    return [operation] { return operation->advance(); };
  }

  std::shared_ptr<Messenger> messenger_;
  uint64_t group_;
  std::vector<int64_t> ranks_;
  size_t me_;
  std::unique_ptr<Mover> mover_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Messenger> messenger, uint64_t group,
                                                std::vector<int64_t> ranks, size_t me) {
  return std::make_unique<MessageCommunicator>(std::move(messenger), group, std::move(ranks), me);
}

}  // namespace moesaic::messages
