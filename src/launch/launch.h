#pragma once
// Ranks of a job on this machine: one thread each. Finds out nothing about the work; runs it, and ends all ranks when one
// fails.
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "config/config.h"
#include "device/device.h"

namespace moesaic {

/// What a rank is given. Used by its own thread only.
struct Rank {
  int64_t rank = 0;
  int64_t world_size = 1;
  Control& control;
  std::unique_ptr<Device> device;
  /// This rank's end of a group of global ranks; every member asks for its groups in the same order.
  std::function<std::unique_ptr<Communicator>(const std::vector<int64_t>& ranks)> communicator;
};

/// Runs `work` on every rank and waits for all. When ranks fail, the others are ended (CommError at their next collective)
/// and the first failure is thrown here: an Error as it is, any other exception as a CommError with the rank's name, step
/// and last operation. A rank that does not end within run.comm_timeout after that is left behind: the process
/// must exit, so this prints the message and does so with code 3.
void run_ranks(const RunConfig& run, int64_t world_size, const std::function<void(Rank&)>& work);

/// The device of one rank alone, without others: for inspecting (null) and for tests.
std::unique_ptr<Device> make_device(const RunConfig& run, int64_t rank, int64_t world_size);

/// A rank of the null device: communicators that exchange nothing, a control that is alone. `work` sees what rank `rank`
/// of a job of world_size would.
void run_null_rank(int64_t rank, int64_t world_size, const std::function<void(Rank&)>& work);

}  // namespace moesaic
