#include "comm/nccl/nccl_groups.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "comm/numbered_communicator.h"
#include "comm/p2p/cuda_mover.h"
#include "device/cuda/cuda_check.h"

namespace moesaic {
namespace {

using messages::Kind;
using messages::OperationKey;

constexpr int64_t kMostScratch = 64 << 20;  // bytes, of sums
constexpr int64_t kAlignment = 256;         // of parts in it

void nccl_check(ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess) return;
  fail<DeviceError>("{} failed: {} ({})", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
}

cudaStream_t native(void* stream) {
  return static_cast<cudaStream_t>(stream);
}
std::byte* bytes_at(void* data, int64_t offset = 0) {
  return static_cast<std::byte*>(data) + offset;
}
const std::byte* bytes_at(const void* data, int64_t offset = 0) {
  return static_cast<const std::byte*>(data) + offset;
}

/// What goes to another member and what comes from it.
struct Piece {
  const std::byte* send = nullptr;
  int64_t send_bytes = 0;
  std::byte* receive = nullptr;
  int64_t receive_bytes = 0;
};

/// Memory of a group on its GPU, used by one collective after the other, on whatever stream each runs.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() {
    cudaFree(memory_);
    if (free_) cudaEventDestroy(free_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// For what is enqueued on `stream` from now on, until give_back.
  std::byte* take(void* stream, int64_t bytes) {
    if (!free_) cuda_check(cudaEventCreateWithFlags(&free_, cudaEventDisableTiming), "making an event");
    cuda_check(cudaStreamWaitEvent(native(stream), free_, 0), "waiting for an event");
    if (bytes > bytes_) {
      cuda_check(cudaFree(memory_), "freeing GPU memory");
      memory_ = nullptr, bytes_ = 0;
      cuda_check(cudaMalloc(&memory_, static_cast<size_t>(bytes)),
                 fmt::format("allocating {} bytes to gather what other machines send", bytes));
      bytes_ = bytes;
    }
    return static_cast<std::byte*>(memory_);
  }
  void give_back(void* stream) { cuda_check(cudaEventRecord(free_, native(stream)), "recording an event"); }

 private:
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  cudaEvent_t free_ = nullptr;  // behind the last use
};

size_t member_of(const std::vector<int64_t>& ranks, int64_t rank) {
  return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

class NcclCommunicator : public NumberedCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<messages::Messenger> messenger, std::vector<int64_t> ranks)
      : NumberedCommunicator(static_cast<int64_t>(member_of(ranks, messenger->rank())),
                             static_cast<int64_t>(ranks.size())),
        messenger_(std::move(messenger)),
        ranks_(std::move(ranks)),
        me_(static_cast<size_t>(rank())),
        host_(messenger_->communicator(ranks_)),
        group_(messenger_->open_group(ranks_)) {
    check_gpus();
    ncclUniqueId id{};
    if (me_ == 0) nccl_check(ncclGetUniqueId(&id), "NCCL: making a group's id");
    finish(host_->broadcast(Call(host_->take_sequence()), &id, &id, sizeof id, 0));
    nccl_check(ncclCommInitRank(&comm_, static_cast<int>(size()), id, static_cast<int>(rank())),
               "NCCL: joining the ranks of several machines");
  }
  ~NcclCommunicator() override {
    // After a failure others may never come, and what is enqueued never end.
    if (job_has_failed())
      ncclCommAbort(comm_);
    else
      ncclCommDestroy(comm_);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  Pending all_gather(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return agree(call, {Kind::all_gather, bytes}, [=, this] {
      nccl_check(ncclAllGather(send, recv, static_cast<size_t>(bytes), ncclInt8, comm_, native(call.stream)),
                 "NCCL's all-gather");
    });
  }
  Pending reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    return agree(call, {Kind::reduce_scatter, count * size_of(type)},
                 [=, this] { reduce(call.stream, send, recv, count, count, type); });
  }
  Pending all_reduce(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    MOESAIC_CHECK(send != recv, "all_reduce is not in place");
    return agree(call, {Kind::all_reduce, count * size_of(type)},
                 [=, this] { reduce(call.stream, send, recv, count, 0, type); });
  }
  Pending all_to_all(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return agree(call, {Kind::all_to_all, bytes}, [=, this] {
      exchange(call.stream, [&](size_t p) {
        const int64_t at = static_cast<int64_t>(p) * bytes;
        return Piece{bytes_at(send, at), bytes, bytes_at(recv, at), bytes};
      });
      mover_.copy(call.stream, bytes_at(recv, rank() * bytes), bytes_at(send, rank() * bytes), bytes);
    });
  }
  Pending exchange_parts(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return agree(call, {Kind::exchange_parts, bytes}, [=, this] {
      exchange(call.stream, [&](size_t p) {
        const auto part = static_cast<int64_t>(p), place = part - (p > me_ ? 1 : 0);
        return Piece{bytes_at(send, part * bytes), bytes, bytes_at(recv, place * bytes), bytes};
      });
    });
  }
  Pending all_to_all_blocks(const Call& call, const void* send, void* recv,
                            const std::vector<BlockCopy>& copies) override {
    int64_t bytes = 0;
    for (const BlockCopy& c : copies) bytes += c.outer * c.rows * c.width;
    return agree(call, {Kind::all_to_all_blocks, bytes},
                 [=, this] { exchange_blocks(call.stream, bytes_at(send), bytes_at(recv), copies, bytes); });
  }
  Pending all_to_all_rows(const Call& call, const void* send, const int32_t* send_offsets, void* recv,
                          const int32_t* recv_offsets, int64_t recv_rows, int64_t row_bytes) override {
    return agree(call, {Kind::all_to_all_rows, row_bytes}, [=, this] {
      exchange_rows(call.stream, bytes_at(send), fetch_offsets(call.stream, send_offsets), bytes_at(recv),
                    fetch_offsets(call.stream, recv_offsets), recv_rows, row_bytes);
    });
  }
  Pending broadcast(const Call& call, const void* send, void* recv, int64_t bytes, int64_t root) override {
    return agree(call, {Kind::broadcast, bytes, root}, [=, this] {
      nccl_check(ncclBroadcast(send, recv, static_cast<size_t>(bytes), ncclInt8, static_cast<int>(root),
                               comm_, native(call.stream)),
                 "NCCL's broadcast");
    });
  }
  Pending barrier(const Call& call) override {
    return agree(call, {Kind::barrier, 0}, [=, this] {
      std::byte* own = scratch_.take(call.stream, (size() + 1) * kAlignment);
      nccl_check(ncclAllGather(own, own + kAlignment, 1, ncclInt8, comm_, native(call.stream)),
                 "NCCL's all-gather");
      scratch_.give_back(call.stream);
    });
  }
  Pending send(const Call& call, const void* data, int64_t bytes, int64_t destination) override {
    return agree_with(destination, OperationKey::message_out, call, bytes, [=, this] {
      nccl_check(ncclSend(data, static_cast<size_t>(bytes), ncclInt8, static_cast<int>(destination), comm_,
                          native(call.stream)),
                 "NCCL's send");
    });
  }
  Pending receive(const Call& call, void* data, int64_t bytes, int64_t source) override {
    return agree_with(source, OperationKey::message_in, call, bytes, [=, this] {
      nccl_check(ncclRecv(data, static_cast<size_t>(bytes), ncclInt8, static_cast<int>(source), comm_,
                          native(call.stream)),
                 "NCCL's receive");
    });
  }

 private:
  using Request = messages::Operation::Request;

  static void finish(const Pending& pending) {
    while (!pending()) {
    }
  }
  bool job_has_failed() const {
    if (std::uncaught_exceptions() > 0) return true;
    try {
      messenger_->control().check();
    } catch (const CommError&) {
      return true;
    }
    return false;
  }
  /// NCCL would only speak of an invalid usage.
  void check_gpus() {
    using Name = std::array<char, 16>;
    int gpu = 0;
    cudaDeviceProp properties{};
    cuda_check(cudaGetDevice(&gpu), "asking for the GPU");
    cuda_check(cudaGetDeviceProperties(&properties, gpu), "asking for a GPU's name");
    Name mine{};
    std::copy_n(properties.uuid.bytes, mine.size(), mine.begin());
    std::vector<Name> all(ranks_.size());
    finish(host_->all_gather(Call(host_->take_sequence()), mine.data(), all.data(), sizeof mine));
    for (size_t p = 0; p < all.size(); ++p)
      for (size_t q = 0; q < p; ++q)
        require<ConfigError>(all[p] != all[q],
                             "ranks {} and {} share a GPU, in a group that spans machines: NCCL, which "
                             "joins these, wants a GPU for each of its ranks",
                             ranks_[q], ranks_[p]);
  }

  /// Complete once all members have made the same call and `enqueue` has run.
  Pending agree(const Call& call, messages::Offer offer, std::function<void()> enqueue) {
    return start({.key = {group_, OperationKey::collective, -1, call.sequence},
                  .ranks = ranks_,
                  .me = me_,
                  .offer = offer,
                  .parts = std::vector<messages::Part>(ranks_.size()),
                  .finish = std::move(enqueue)});
  }
  Pending agree_with(int64_t other, OperationKey::Channel way, const Call& call, int64_t bytes,
                     std::function<void()> enqueue) {
    MOESAIC_CHECK(other != rank());
    const int64_t peer = ranks_[static_cast<size_t>(other)];
    return start({.key = {group_, way, peer, call.sequence},
                  .ranks = {ranks_[me_], peer},
                  .me = 0,
                  .offer = {Kind::message, bytes},
                  .parts = std::vector<messages::Part>(2),
                  .finish = std::move(enqueue)});
  }
  Pending start(Request request) {
    const auto operation = std::make_shared<messages::Operation>(messenger_, std::move(request));
    return [operation] { return operation->advance(); };
  }

  /// piece(p) for every other member p, all at once.
  template <class F>
  void exchange(void* stream, const F& piece) {
    nccl_check(ncclGroupStart(), "NCCL's group");
    for (size_t p = 0; p < ranks_.size(); ++p) {
      if (p == me_) continue;
      const Piece one = piece(p);
      if (one.send_bytes > 0)
        nccl_check(ncclSend(one.send, static_cast<size_t>(one.send_bytes), ncclInt8, static_cast<int>(p),
                            comm_, native(stream)),
                   "NCCL's send");
      if (one.receive_bytes > 0)
        nccl_check(ncclRecv(one.receive, static_cast<size_t>(one.receive_bytes), ncclInt8,
                            static_cast<int>(p), comm_, native(stream)),
                   "NCCL's receive");
    }
    nccl_check(ncclGroupEnd(), "NCCL's exchange");
  }

  /// Every member's part of this rank, in pieces that fit the scratch; parts lie `pitch` elements apart in a send buffer.
  void reduce(void* stream, const void* send, void* recv, int64_t count, int64_t pitch, DType type) {
    const int64_t width = size_of(type);
    const int64_t most = std::max<int64_t>(kMostScratch / size() / kAlignment, 1) * kAlignment / width;
    for (int64_t first = 0; first < count; first += most) {
      const int64_t some = std::min(most, count - first), bytes = some * width,
                    apart = round_up(bytes, kAlignment);
      std::byte* parts = scratch_.take(stream, size() * apart);
      const auto source = [&](size_t p) {
        return bytes_at(send, (static_cast<int64_t>(p) * pitch + first) * width);
      };
      const auto part = [&](size_t p) { return parts + static_cast<int64_t>(p) * apart; };
      exchange(stream, [&](size_t p) { return Piece{source(p), bytes, part(p), bytes}; });
      mover_.copy(stream, part(me_), source(me_), bytes);
      std::vector<const std::byte*> sources;
      for (size_t p = 0; p < ranks_.size(); ++p) sources.push_back(part(p));
      mover_.sum(stream, bytes_at(recv, first * width), sources, 0, some, type);
      scratch_.give_back(stream);
    }
  }

  /// Pieces are packed behind each other for each member, and unpacked by the other end. `bytes`: of one member's.
  void exchange_blocks(void* stream, const std::byte* send, std::byte* recv,
                       const std::vector<BlockCopy>& copies, int64_t bytes) {
    const int64_t apart = round_up(bytes, kAlignment);
    std::byte* to = scratch_.take(stream, 2 * size() * apart);
    std::byte* from = to + size() * apart;
    const auto part = [&](std::byte* packed, size_t p) { return packed + static_cast<int64_t>(p) * apart; };
    const auto for_each = [&](auto&& f) {
      int64_t at = 0;
      for (const BlockCopy& c : copies) {
        f(c, std::vector<int64_t>(ranks_.size(), at));
        at += c.outer * c.rows * c.width;
      }
    };
    for_each([&](BlockCopy c, const std::vector<int64_t>& packed) {
      mover_.copy_blocks(stream, recv, send, c, me_, me_);
      c.recv_offset = packed, c.recv_pitch = c.width, c.recv_outer = c.rows * c.width;
      for (size_t p = 0; p < ranks_.size(); ++p)
        if (p != me_) mover_.copy_blocks(stream, part(to, p), send, c, p, me_);
    });
    exchange(stream, [&](size_t p) { return Piece{part(to, p), bytes, part(from, p), bytes}; });
    for_each([&](BlockCopy c, const std::vector<int64_t>& packed) {
      c.send_offset = packed, c.send_pitch = c.width, c.send_outer = c.rows * c.width;
      for (size_t p = 0; p < ranks_.size(); ++p)
        if (p != me_) mover_.copy_blocks(stream, recv, part(from, p), c, me_, p);
    });
    scratch_.give_back(stream);
  }

  std::vector<int32_t> fetch_offsets(void* stream, const int32_t* offsets) {
    std::vector<int32_t> on_host(ranks_.size() + 1);
    cuda_check(cudaMemcpyAsync(on_host.data(), offsets, on_host.size() * sizeof(int32_t), cudaMemcpyDefault,
                               native(stream)),
               "fetching numbers of rows");
    cuda_check(cudaStreamSynchronize(native(stream)), "fetching numbers of rows");
    return on_host;
  }
  /// Members tell each other how many rows they have room for: a sender leaves out what its receiver would.
  void exchange_rows(void* stream, const std::byte* send, const std::vector<int32_t>& send_offsets,
                     std::byte* recv, const std::vector<int32_t>& recv_offsets, int64_t recv_rows,
                     int64_t row_bytes) {
    std::vector<int64_t> room(ranks_.size()), theirs(ranks_.size());
    for (size_t p = 0; p < ranks_.size(); ++p) {
      const int64_t at = recv_offsets[p];
      room[p] = std::clamp<int64_t>(recv_offsets[p + 1] - at, 0, std::max<int64_t>(recv_rows - at, 0));
    }
    finish(host_->all_to_all(Call(host_->take_sequence()), room.data(), theirs.data(), sizeof(int64_t)));
    const auto rows_to = [&](size_t p) {
      return std::min<int64_t>(send_offsets[p + 1] - send_offsets[p], theirs[p]);
    };
    exchange(stream, [&](size_t p) {
      return Piece{send + send_offsets[p] * row_bytes, rows_to(p) * row_bytes,
                   recv + recv_offsets[p] * row_bytes, room[p] * row_bytes};
    });
    mover_.copy(stream, recv + recv_offsets[me_] * row_bytes, send + send_offsets[me_] * row_bytes,
                rows_to(me_) * row_bytes);
  }

  std::shared_ptr<messages::Messenger> messenger_;
  std::vector<int64_t> ranks_;
  size_t me_;
  std::unique_ptr<Communicator> host_;  // of the same ranks, for what hosts tell each other
  uint64_t group_;
  CudaMover mover_;
  Scratch scratch_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

GroupMaker make_nccl_groups(const std::shared_ptr<messages::Messenger>& messenger) {
  return [messenger](const std::vector<int64_t>& ranks) {
    return std::make_unique<NcclCommunicator>(messenger, ranks);
  };
}

}  // namespace moesaic
