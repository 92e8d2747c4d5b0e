#include "base/check.h"
#include "comm/meeting/meeting_place.h"
#include "comm/numbered_communicator.h"

namespace moesaic {
namespace {

std::vector<const std::byte*> data_of(const std::vector<Offer>& offers) {
  std::vector<const std::byte*> data;
  data.reserve(offers.size());
  for (const Offer& offer : offers) data.push_back(offer.data);
  return data;
}

/// Every collective is a meeting (meeting_place.h) at which each rank pulls its part from the others by its Mover.
class MeetingCommunicator : public NumberedCommunicator {
 public:
  explicit MeetingCommunicator(MeetingPlace place)
      : NumberedCommunicator(place.rank(), place.size()), place_(std::move(place)), mover_(place_.mover()) {}

  void forget_memory() override { mover_.forget_memory(); }

  Pending all_gather(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return meet(call, {"all_gather", bytes, to_bytes(send)}, [=, this](const std::vector<Offer>& offers) {
      for_each_part(call, offers, [&](size_t p, void* stream) {
        mover_.copy(stream, part_of(recv, p, bytes), offers[p].data, bytes);
      });
    });
  }
  Pending reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    return meet(call, {"reduce_scatter", count * size_of(type), to_bytes(send)},
                [=, this](const std::vector<Offer>& offers) {
                  mover_.sum(call.stream, recv, data_of(offers), rank() * count, count, type);
                });
  }
  Pending all_reduce(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    MOESAIC_CHECK(send != recv, "all_reduce is not in place");
    return meet(call, {"all_reduce", count * size_of(type), to_bytes(send)},
                [=, this](const std::vector<Offer>& offers) {
                  mover_.sum(call.stream, recv, data_of(offers), 0, count, type);
                });
  }
  Pending all_to_all(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return meet(call, {"all_to_all", bytes, to_bytes(send)}, [=, this](const std::vector<Offer>& offers) {
      for_each_part(call, offers, [&](size_t p, void* stream) {
        mover_.copy(stream, part_of(recv, p, bytes), offers[p].data + rank() * bytes, bytes);
      });
    });
  }
  Pending exchange_parts(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return meet(call, {"exchange_parts", bytes, to_bytes(send)}, [=, this](const std::vector<Offer>& offers) {
      int64_t at = 0;
      for (size_t p = 0; p < offers.size(); ++p) {
        if (static_cast<int64_t>(p) == rank()) continue;
        copy(call, recv, at, offers[p].data + rank() * bytes, bytes);
        at += bytes;
      }
    });
  }
  Pending all_to_all_blocks(const Call& call, const void* send, void* recv,
                            const std::vector<BlockCopy>& copies) override {
    int64_t total = 0;
    for (const BlockCopy& c : copies) total += c.outer * c.rows * c.width;
    return meet(call, {"all_to_all_blocks", total, to_bytes(send)},
                [=, this](const std::vector<Offer>& offers) {
                  for_each_part(call, offers, [&](size_t p, void* stream) {
                    for (const BlockCopy& c : copies)
                      mover_.copy_blocks(stream, static_cast<std::byte*>(recv), offers[p].data, c,
                                         static_cast<size_t>(rank()), p);
                  });
                });
  }
  Pending all_to_all_rows(const Call& call, const void* send, const int32_t* send_offsets, void* recv,
                          const int32_t* recv_offsets, int64_t recv_rows, int64_t row_bytes) override {
    return meet(call, {"all_to_all_rows", row_bytes, to_bytes(send), send_offsets},
                [=, this](const std::vector<Offer>& offers) {
                  std::vector<Mover::Rows> sources;
                  sources.reserve(offers.size());
                  for (const Offer& offer : offers) sources.push_back({offer.data, offer.offsets});
                  mover_.copy_rows(call.stream, static_cast<std::byte*>(recv), recv_offsets, sources,
                                   static_cast<size_t>(rank()), recv_rows, row_bytes);
                });
  }
  Pending broadcast(const Call& call, const void* send, void* recv, int64_t bytes, int64_t root) override {
    return meet(call, {"broadcast", bytes, to_bytes(send), nullptr, root},
                [=, this](const std::vector<Offer>& offers) {
                  copy(call, recv, 0, offers[static_cast<size_t>(root)].data, bytes);
                });
  }
  Pending barrier(const Call& call) override {
    return meet(call, {"barrier", 0}, [](const std::vector<Offer>&) {});
  }
  Pending send(const Call& call, const void* data, int64_t bytes, int64_t destination) override {
    return place_.message(destination, true, call, {"message", bytes, to_bytes(data)}, nullptr);
  }
  Pending receive(const Call& call, void* data, int64_t bytes, int64_t source) override {
    return place_.message(
        source, false, call, {"message", bytes, nullptr},
        [=, this](const std::vector<Offer>& offers) { copy(call, data, 0, offers[1].data, bytes); });
  }

 private:
  static const std::byte* to_bytes(const void* p) { return static_cast<const std::byte*>(p); }
  static std::byte* part_of(void* whole, size_t p, int64_t bytes) {
    return static_cast<std::byte*>(whole) + static_cast<int64_t>(p) * bytes;
  }
  /// pull(p, stream) for each rank, this one's own part beside the others': it crosses no link.
  template <class F>
  void for_each_part(const Call& call, const std::vector<Offer>& offers, const F& pull) {
    const auto me = static_cast<size_t>(rank());
    pull(me, mover_.fork(call.stream));
    for (size_t p = 0; p < offers.size(); ++p)
      if (p != me) pull(p, call.stream);
    mover_.join(call.stream);
  }
  void copy(const Call& call, void* to, int64_t at, const std::byte* from, int64_t bytes) {
    mover_.copy(call.stream, static_cast<std::byte*>(to) + at, from, bytes);
  }
  Pending meet(const Call& call, Offer offer, MeetingPlace::Pull pull) {
    return place_.collective(call, offer, std::move(pull));
  }

  MeetingPlace place_;
  Mover& mover_;
};

}  // namespace

std::unique_ptr<Communicator> make_meeting_communicator(MeetingPlace place) {
  return std::make_unique<MeetingCommunicator>(std::move(place));
}

}  // namespace moesaic
