#include "launch/transport.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "comm/tcp/tcp_mesh.h"

namespace moesaic {
namespace {

bool has(const Environment& environment, const char* variable) {
  return environment(variable).has_value();
}

/// Why this rank cannot use MPI; empty when it can.
std::string obstacle(const RunConfig& run) {
  if (run.transport == Transport::sockets) return "run.transport = sockets";
  const std::string library = mpi::library();
  if (library.empty()) return "this build has no MPI (MOESAIC_MPI)";
  if (!launcher_speaks(library, process_environment))
    return fmt::format("this rank was not started by a launcher of {} (its mpirun, srun --mpi)", library);
  return "";
}

bool started_by_mpi() {
  return launcher_speaks("Open MPI", process_environment) || launcher_speaks("MPICH", process_environment);
}

}  // namespace

bool launcher_speaks(const std::string& library, const Environment& environment) {
  if (library.empty()) return false;
  if (library.starts_with("Open MPI"))
    return has(environment, "OMPI_COMM_WORLD_SIZE") ||
           (has(environment, "SLURM_PROCID") && has(environment, "PMIX_RANK"));
  return has(environment, "PMI_RANK");
}

std::shared_ptr<messages::Messenger> connect_ranks(const RunConfig& run, TcpControl& control) {
  const std::string mine = obstacle(run);
  require<ConfigError>(mine.empty() || run.transport != Transport::mpi, "run.transport = mpi, but {}", mine);
  std::string reason;  // of the first rank that has one
  for (const std::string& other : control.all_gather(mine))
    if (reason.empty()) reason = other;
  if (control.rank() == 0 && started_by_mpi()) {
    if (reason.empty())
      log_info("ranks talk through MPI: {}", mpi::library());
    else
      log_info("ranks talk through sockets: {}", reason);
  }
  if (!reason.empty()) return std::make_shared<tcp::TcpMesh>(control, control.hosts(), control.token());
  auto messenger = mpi::make_messenger(control);
  // MPI may count bytes as sent that wait in this process for its next call.
  control.set_while_waiting([weak = std::weak_ptr(messenger)] {
    if (const auto alive = weak.lock()) alive->progress();
  });
  return messenger;
}

}  // namespace moesaic
