#include "launch/process_rank.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "comm/nccl/nccl_groups.h"
#include "comm/p2p/ipc_groups.h"
#include "config/enum_names.h"
#include "launch/tcp_control.h"
#include "launch/transport.h"

namespace moesaic {
namespace {

// mpirun kills all ranks as soon as one has left with a failure: the one that tells why goes first.
constexpr std::chrono::milliseconds kTimeToTell{700};

/// This machine's name for the time that it has been up.
std::string machine_name() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  if (!name.empty()) return name;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

/// The cores that this process may use, or the GPUs that it sees.
std::string resources(DeviceKind kind) {
  if (kind == DeviceKind::cuda) return names_of_cuda_devices();
  std::string cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) cores += fmt::format(" {}", i);
  return cores;
}

/// The ranks that have the same cores or GPUs as this one, which launchers may have divided already.
Share find_share(Control& control, DeviceKind kind) {
  const std::string mine = machine_name() + resources(kind);
  const auto all = control.all_gather(mine);
  const auto me = all.begin() + static_cast<std::ptrdiff_t>(control.rank());
  return {.index = std::count(all.begin(), me, mine), .count = std::count(all.begin(), all.end(), mine)};
}

/// GPUs of one machine reach each other as threads do, those of several through NCCL.
GroupMaker make_gpu_groups(const RunConfig& run, TcpControl& control) {
  const std::string mine = process_environment("MOESAIC_MACHINE").value_or(machine_name());
  const std::vector<std::string> machines = control.all_gather(mine);
  GroupMaker inside = make_ipc_groups(control, mine);
  if (std::all_of(machines.begin(), machines.end(), [&](const std::string& m) { return m == mine; }))
    return inside;
  const GroupMaker between = make_nccl_groups(connect_ranks(run, control));
  return [machines, mine, inside, between](const std::vector<int64_t>& ranks) {
    const bool here = std::all_of(ranks.begin(), ranks.end(),
                                  [&](int64_t r) { return machines[static_cast<size_t>(r)] == mine; });
    return here ? inside(ranks) : between(ranks);
  };
}

/// How ranks that are processes reach each other.
GroupMaker make_groups(const RunConfig& run, TcpControl& control) {
  if (run.device == DeviceKind::cuda) return make_gpu_groups(run, control);
  const auto messenger = connect_ranks(run, control);
  return [messenger](const std::vector<int64_t>& ranks) { return messenger->communicator(ranks); };
}

void run_rank(const RunConfig& run, TcpControl& control, const std::function<void(Rank&)>& work) {
  control.join();
  control.set_time_limit(std::max(run.join_timeout, run.comm_timeout));
  auto device = make_device(run, control.rank(), find_share(control, run.device));
  const GroupMaker groups = make_groups(run, control);
  {
    Rank rank{.rank = control.rank(),
              .world_size = control.size(),
              .control = control,
              .device = std::move(device),
              .communicator = groups};
    rank.device->set_status([&](const std::string& operation) { control.set_operation(operation); });
    work(rank);
  }
  control.set_operation("end of its work");
  control.finish();
}

/// What run_rank threw, and how the other ranks are told.
struct Failure {
  std::exception_ptr thrown;
  std::string message;
};

Failure try_rank(const RunConfig& run, TcpControl& control, const std::function<void(Rank&)>& work) {
  const auto failed = [&](const std::exception& error) {
    return fmt::format("{} failed: {}", control.describe(control.rank()), error.what());
  };
  try {
    run_rank(run, control, work);
  } catch (const CommError& error) {
    return {std::current_exception(), error.what()};
  } catch (const Error& error) {
    return {std::current_exception(), failed(error)};
  } catch (const std::exception& error) {
    return {std::make_exception_ptr(CommError(failed(error))), failed(error)};
  }
  return {};
}

}  // namespace

void run_process_rank(const RunConfig& run, const RankVariables& place, int64_t world_size,
                      const std::function<void(Rank&)>& work, const std::string& identity) {
  require<ConfigError>(
      place.world_size == world_size,
      "{} started {} processes, but the layout has {} ranks (pp * dp * n): start as many, change the "
      "layout, or set run.launcher = none to run all ranks as threads of each process",
      name_of(place.family), place.world_size, world_size);
  set_log_tag(fmt::format("rank {}", place.rank));
  const std::string config =
      fmt::format("{}\n{}\n{}\n{}\n{}", run.folder, run.name, run.resume, name_of(run.device), identity);
  std::string message;
  {
    TcpControl control({.rank = place.rank,
                        .size = place.world_size,
                        .address = place.address,
                        .port = place.port,
                        .config = fingerprint(config),
                        .job = fingerprint(place.job),
                        .timeout = run.comm_timeout,
                        .join_timeout = run.join_timeout,
                        .leave_when_stuck = true});
    const Failure failure = try_rank(run, control, work);
    set_log_tag("");
    if (!failure.thrown) return;
    control.set_leaving();
    control.abort(failure.message);
    if (control.origin() == control.rank()) std::rethrow_exception(failure.thrown);
    message = control.message();
  }
  if (place.family == Launcher::openmpi || place.family == Launcher::mpich)
    std::this_thread::sleep_for(kTimeToTell);
  throw OtherRankFailed(message);
}

}  // namespace moesaic
