#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/threads/thread_hub.h"

namespace moesaic {
namespace {

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// out[i] = sum over ranks, in rank order, of their data[first + i].
template <class T>
void sum_parts(const std::vector<Offer>& offers, int64_t first, int64_t count, T* out) {
  constexpr int64_t kBlock = 1024;
  using Sum = std::conditional_t<std::is_same_v<T, int32_t>, int32_t, float>;
  Sum sum[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t length = std::min(kBlock, count - at);
    for (size_t p = 0; p < offers.size(); ++p) {
      const T* part = reinterpret_cast<const T*>(offers[p].data) + first + at;
      if (p == 0)
        for (int64_t i = 0; i < length; ++i) sum[i] = static_cast<Sum>(part[i]);
      else
        for (int64_t i = 0; i < length; ++i) sum[i] += static_cast<Sum>(part[i]);
    }
    for (int64_t i = 0; i < length; ++i) out[at + i] = static_cast<T>(sum[i]);
  }
}

void sum_parts(const std::vector<Offer>& offers, int64_t first, int64_t count, DType type, void* out) {
  if (type == DType::i32) return sum_parts(offers, first, count, static_cast<int32_t*>(out));
  with_float(type, [&](auto zero) { sum_parts(offers, first, count, static_cast<decltype(zero)*>(out)); });
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadHub> hub, int64_t rank)
      : hub_(std::move(hub)), rank_(rank), pairs_(static_cast<size_t>(hub_->size() * hub_->size()), 0) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return hub_->size(); }
  uint64_t take_sequence() override { return ++sequence_; }
  uint64_t take_pair_sequence(int64_t source, int64_t destination) override {
    return ++pairs_[static_cast<size_t>(source * size() + destination)];
  }

  Pending all_gather(uint64_t sequence, const void* send, void* recv, int64_t bytes) override {
    return meet(sequence, {"all_gather", bytes, to_bytes(send)}, [=](const std::vector<Offer>& offers) {
      for (size_t p = 0; p < offers.size(); ++p)
        copy(static_cast<std::byte*>(recv) + static_cast<int64_t>(p) * bytes, offers[p].data, bytes);
    });
  }
  Pending reduce_scatter(uint64_t sequence, const void* send, void* recv, int64_t count,
                         DType type) override {
    return meet(sequence, {"reduce_scatter", count * size_of(type), to_bytes(send)},
                [=, me = rank_](const std::vector<Offer>& offers) {
                  sum_parts(offers, me * count, count, type, recv);
                });
  }
  Pending all_reduce(uint64_t sequence, const void* send, void* recv, int64_t count, DType type) override {
    MOESAIC_CHECK(send != recv, "all_reduce is not in place");
    return meet(sequence, {"all_reduce", count * size_of(type), to_bytes(send)},
                [=](const std::vector<Offer>& offers) { sum_parts(offers, 0, count, type, recv); });
  }
  Pending all_to_all(uint64_t sequence, const void* send, void* recv, int64_t bytes) override {
    return meet(sequence, {"all_to_all", bytes, to_bytes(send)},
                [=, me = rank_](const std::vector<Offer>& offers) {
                  for (size_t p = 0; p < offers.size(); ++p)
                    copy(static_cast<std::byte*>(recv) + static_cast<int64_t>(p) * bytes,
                         offers[p].data + me * bytes, bytes);
                });
  }
  Pending all_to_all_blocks(uint64_t sequence, const void* send, void* recv,
                            const std::vector<BlockCopy>& copies) override {
    int64_t total = 0;
    for (const BlockCopy& c : copies) total += c.outer * c.rows * c.width;
    return meet(
        sequence, {"all_to_all_blocks", total, to_bytes(send)},
        [=, me = static_cast<size_t>(rank_)](const std::vector<Offer>& offers) {
          for (size_t p = 0; p < offers.size(); ++p)
            for (const BlockCopy& c : copies)
              for (int64_t o = 0; o < c.outer; ++o)
                for (int64_t i = 0; i < c.rows; ++i)
                  copy(static_cast<std::byte*>(recv) + c.recv_offset[p] + o * c.recv_outer + i * c.recv_pitch,
                       offers[p].data + c.send_offset[me] + o * c.send_outer + i * c.send_pitch, c.width);
        });
  }
  Pending all_to_all_rows(uint64_t sequence, const void* send, const int32_t* send_offsets, void* recv,
                          const int32_t* recv_offsets, int64_t recv_rows, int64_t row_bytes) override {
    return meet(sequence, {"all_to_all_rows", row_bytes, to_bytes(send), send_offsets},
                [=, me = rank_](const std::vector<Offer>& offers) {
                  for (size_t p = 0; p < offers.size(); ++p) {
                    const int64_t first = offers[p].offsets[me], to = recv_offsets[p];
                    const int64_t rows =
                        std::min<int64_t>({int64_t{offers[p].offsets[me + 1]} - first,
                                           int64_t{recv_offsets[p + 1]} - to, recv_rows - to});
                    copy(static_cast<std::byte*>(recv) + to * row_bytes, offers[p].data + first * row_bytes,
                         rows * row_bytes);
                  }
                });
  }
  Pending broadcast(uint64_t sequence, const void* send, void* recv, int64_t bytes, int64_t root) override {
    return meet(
        sequence, {"broadcast", bytes, to_bytes(send), nullptr, root},
        [=](const std::vector<Offer>& offers) { copy(recv, offers[static_cast<size_t>(root)].data, bytes); });
  }
  Pending barrier(uint64_t sequence) override { return meet(sequence, {"barrier", 0}, nullptr); }
  Pending send(uint64_t sequence, const void* data, int64_t bytes, int64_t destination) override {
    return hub_->message(rank_, destination, true, sequence, {"message", bytes, to_bytes(data)}, nullptr);
  }
  Pending receive(uint64_t sequence, void* data, int64_t bytes, int64_t source) override {
    return hub_->message(source, rank_, false, sequence, {"message", bytes, nullptr},
                         [=](const std::vector<Offer>& offers) { copy(data, offers[0].data, bytes); });
  }

 private:
  static const std::byte* to_bytes(const void* p) { return static_cast<const std::byte*>(p); }
  Pending meet(uint64_t sequence, Offer offer, ThreadHub::Pull pull) {
    return hub_->collective(rank_, sequence, offer, std::move(pull));
  }

  std::shared_ptr<ThreadHub> hub_;
  int64_t rank_;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> pairs_;
};

}  // namespace

std::unique_ptr<Communicator> make_thread_communicator(std::shared_ptr<ThreadHub> hub, int64_t rank) {
  return std::make_unique<ThreadCommunicator>(std::move(hub), rank);
}

}  // namespace moesaic
