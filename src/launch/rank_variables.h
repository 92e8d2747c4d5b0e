#pragma once
// Which rank this process is, as the program that started it says in environment variables: torchrun, Open MPI, MPICH
// (Hydra) or Slurm. Pure: variables come through a function, and are checked like any input from outside.
//
//   if (const auto place = find_rank(config.run, process_environment)) ... one rank per process
//   else                                                              ... ranks are threads of this process
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/config.h"

namespace moesaic {

struct RankVariables {
  Launcher family = Launcher::none;
  int64_t rank = 0, world_size = 1;
  std::optional<int64_t> local_rank,
      local_size;       // among the ranks of this machine, where the launcher says so
  std::string address;  // host of rank 0
  int port = 0;         // of rank 0's control channel
  std::string job;      // tells this job from others; empty where the launcher has no name for it
};

/// The value of a variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> process_environment(const std::string& name);

/// This process's place in a job of several processes. Nothing when no launcher is found, when it started a single process
/// (which then runs all ranks as threads), or when run.launcher = none. What `run` states (launcher, control_address,
/// control_port) beats variables. Throws ConfigError, which names the variable, when one is missing or makes no sense, and
/// which names both launchers when two of them disagree.
std::optional<RankVariables> find_rank(const RunConfig& run, const Environment& environment);

/// The first host of a Slurm list: "gpu[07-09,12],login" gives "gpu07". Throws ConfigError when `list` is none.
std::string first_host(const std::string& list);

}  // namespace moesaic
