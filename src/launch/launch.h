#pragma once
// Ranks of a job: threads of this process, or, when a launcher started several processes, one rank in each. Finds out
// nothing about the work; runs it, and ends all ranks when one fails.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/control.h"
#include "config/config.h"
#include "device/device.h"

namespace moesaic {

/// The job ended because of another rank, in another process, which tells the user why: nothing is left to say here.
struct OtherRankFailed : CommError {
  using CommError::CommError;
};

/// What a rank is given. Used by its own thread only.
struct Rank {
  int64_t rank = 0;
  int64_t world_size = 1;
  Control& control;
  std::unique_ptr<Device> device;
  /// This rank's end of a group of global ranks; every member asks for its groups in the same order.
  std::function<std::unique_ptr<Communicator>(const std::vector<int64_t>& ranks)> communicator;
};

/// Runs `work` on every rank of this process and waits for all ranks: all as threads, or one rank when this process was
/// started by a launcher as one of several (rank_variables.h); it then joins the others first, which must have been given the
/// same configuration (`identity`: what else must be equal on all). When ranks fail, the others are ended (CommError at their
/// next collective) and the first failure is thrown here: an Error as it is, any other exception as a CommError with the
/// rank's name, step and last operation; OtherRankFailed when it is another process's to tell. A rank that does not end within
/// two seconds after that (a process: one) is left behind: the process must exit, so this prints the message and does so with
/// code 3. A rank may stand still for run.join_timeout while others wait, until it sets a limit of its own (Control). Throws ConfigError when the launcher's number of processes is not world_size.
void run_ranks(const RunConfig& run, int64_t world_size, const std::function<void(Rank&)>& work,
               const std::string& identity = "");

/// For the end of a program whose jobs have all ended well: parts from the launcher (MPI_Finalize), with the other ranks. A
/// program that ends otherwise does not call it.
void leave_launcher();

/// Whether this process is the one that tells the user what the job did: the one that holds rank 0.
bool speaks_for_job(const RunConfig& run);

/// Among the ranks that divide the cores of a process or machine, or its GPUs: which one, of how many.
struct Share {
  int64_t index = 0, count = 1;
};
/// The device of rank `rank`: with its share of the cores, on its GPU.
std::unique_ptr<Device> make_device(const RunConfig& run, int64_t rank, const Share& share);

/// A rank of the null device: communicators that exchange nothing, a control that is alone. `work` sees what rank `rank`
/// of a job of world_size would.
void run_null_rank(int64_t rank, int64_t world_size, const std::function<void(Rank&)>& work);

}  // namespace moesaic
