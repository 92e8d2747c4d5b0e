#pragma once
// MPI as what carries the messages of CPU ranks: one per process, started by MPI's own launcher. A build without MPI has
// no_mpi.cpp in place of this folder.
//
// MPI lives as long as the process: the first messenger begins it, end() ends it. It is called by the rank's working thread alone
// (MPI_THREAD_FUNNELED); the control channel's thread never does. Signals stay ours. MPI is not asked to end a job: a rank
// that leaves after a failure leaves without MPI_Finalize, which would wait for the others, and its exit code tells the launcher.
#include <memory>
#include <string>

#include "comm/messages/messenger.h"

namespace moesaic::mpi {

/// The MPI of this build, "Open MPI v4.1.4" or "MPICH 4.0.2"; empty when it has none. Does not begin it.
std::string library();

/// Called by all ranks together. Throws ConfigError in a build without MPI, and when MPI does not know the ranks as
/// `control` does: its launcher is another MPI's.
std::shared_ptr<messages::Messenger> make_messenger(Control& control);

/// Ends MPI where it was begun, once every rank has done all of its work; nothing else of MPI may be called after it.
void end();

}  // namespace moesaic::mpi
