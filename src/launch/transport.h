#pragma once
// How ranks that are processes reach each other's data: sockets, or MPI where an MPI launcher started them.
#include <memory>
#include <string>

#include "comm/messages/messenger.h"
#include "config/config.h"
#include "launch/rank_variables.h"
#include "launch/tcp_control.h"

namespace moesaic {

/// Whether the launcher's variables say that it speaks this MPI (mpi::library()): an Open MPI is found by its mpirun or by
/// srun --mpi=pmix, all others by Hydra's mpirun or by srun --mpi=pmi2. Never for "", which is none.
bool launcher_speaks(const std::string& library, const Environment& environment);

/// Called by all ranks together, after the control channel has joined them: MPI when run.transport allows it and every rank
/// can, else sockets; rank 0 tells which where there was a choice. Throws ConfigError when run.transport = mpi cannot be had.
std::shared_ptr<messages::Messenger> connect_ranks(const RunConfig& run, TcpControl& control);

}  // namespace moesaic
