#include "comm/p2p/ipc_groups.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/meeting/meeting_place.h"
#include "comm/meeting/shared_boards.h"
#include "comm/p2p/cuda_mover.h"
#include "comm/p2p/ipc_memory.h"
#include "device/cuda/cuda_check.h"

namespace moesaic {
namespace {

/// Marks are numbers of events, whose handles stand in the notes of their rank's board.
class IpcMover : public CudaMover {
 public:
  IpcMover(std::shared_ptr<IpcMemory> memory, std::vector<int64_t> ranks, std::byte* notes,
           std::vector<const std::byte*> others_notes)
      : memory_(std::move(memory)),
        ranks_(std::move(ranks)),
        notes_(notes),
        others_notes_(std::move(others_notes)),
        opened_(ranks_.size()) {}
  ~IpcMover() override {
    for (const auto& events : opened_)
      for (cudaEvent_t event : events)
        if (event) cudaEventDestroy(event);
  }

  Address publish(const void* memory) override { return memory_->publish(memory); }
  const std::byte* reach(size_t member, const Address& address) override {
    return memory_->reach(ranks_[member], address);
  }
  void forget_memory() override { memory_->forget(); }

  Mark mark(void* stream) override {
    const uint64_t number = next_++ % kMarks;
    cudaEvent_t& event = marks_[number];
    if (!event) {
      cudaIpcEventHandle_t handle;
      cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess),
                 "making an event");
      cuda_check(cudaIpcGetEventHandle(&handle, event), "sharing an event with other processes");
      std::memcpy(notes_ + number * sizeof handle, &handle, sizeof handle);
    }
    cuda_check(cudaEventRecord(event, static_cast<cudaStream_t>(stream)), "recording an event");
    return number + 1;
  }
  void wait(void* stream, size_t member, Mark mark) override {
    cudaEvent_t& event = opened_[member][(mark - 1) % kMarks];
    if (!event) {
      cudaIpcEventHandle_t handle;
      std::memcpy(&handle, others_notes_[member] + (mark - 1) % kMarks * sizeof handle, sizeof handle);
      cuda_check(cudaIpcOpenEventHandle(&event, handle),
                 fmt::format("opening an event of rank {}", ranks_[member]));
    }
    cuda_check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event, 0), "waiting for a peer");
  }

 private:
  static_assert(kMarks * sizeof(cudaIpcEventHandle_t) <= static_cast<size_t>(MemberBoard::kNotesBytes));

  std::shared_ptr<IpcMemory> memory_;
  std::vector<int64_t> ranks_;
  std::byte* notes_;                                     // of this rank's board
  std::vector<const std::byte*> others_notes_;           // [member]
  std::vector<std::array<cudaEvent_t, kMarks>> opened_;  // [member]
};

/// Whether each rank reaches the GPU memory of the others of its machine; the same answer on all.
void try_memory(Control& control, const SharedBoards& boards, IpcMemory& memory) {
  void* mine = nullptr;
  cuda_check(cudaMalloc(&mine, 256), "allocating GPU memory");
  const Address address = memory.publish(mine);
  const auto all = control.all_gather(std::string(reinterpret_cast<const char*>(&address), sizeof address));
  std::string problem;
  for (const int64_t r : boards.neighbours()) {
    if (r == control.rank() || !problem.empty()) continue;
    Address its;
    if (all[static_cast<size_t>(r)].size() == sizeof its)
      std::memcpy(&its, all[static_cast<size_t>(r)].data(), sizeof its);
    try {
      memory.reach(r, its);
    } catch (const DeviceError& error) {
      problem = fmt::format("rank {}: {}", control.rank(), error.what());
    }
  }
  memory.forget();
  for (const std::string& found : control.all_gather(problem))
    require<ConfigError>(
        found.empty(),
        "ranks of one machine cannot reach each other's GPU memory ({}); let every process see all "
        "GPUs of the machine and share its namespaces, or start one process, whose ranks are threads, or "
        "give "
        "each process a MOESAIC_MACHINE of its own: NCCL then moves their data, as between machines",
        found);
  cuda_check(cudaFree(mine), "freeing GPU memory");
}

}  // namespace

GroupMaker make_ipc_groups(Control& control, const std::string& machine) {
  /// Movers stay until all ranks have ended: others may still wait for their events.
  struct Machine {
    Machine(Control& job, const std::string& name) : boards(job, name) {}
    SharedBoards boards;
    std::shared_ptr<IpcMemory> memory = std::make_shared<IpcMemory>();
    std::vector<std::unique_ptr<Mover>> movers;
  };
  const auto shared = std::make_shared<Machine>(control, machine);
  try_memory(control, shared->boards, *shared->memory);
  return [&control, shared](const std::vector<int64_t>& ranks) {
    const std::vector<MemberBoard> boards = shared->boards.group(ranks);
    const auto me =
        static_cast<size_t>(std::find(ranks.begin(), ranks.end(), control.rank()) - ranks.begin());
    std::vector<const std::byte*> notes;
    notes.reserve(boards.size());
    for (const MemberBoard& board : boards) notes.push_back(board.notes());
    shared->movers.push_back(
        std::make_unique<IpcMover>(shared->memory, ranks, boards[me].notes(), std::move(notes)));
    return make_meeting_communicator(
        MeetingPlace(control, ranks, me, boards, *shared->movers.back(), shared));
  };
}

}  // namespace moesaic
