#include "comm/mpi/mpi.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "comm/mpi/mpi_messenger.h"

namespace moesaic::mpi {
namespace {

bool begun() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

/// MPI_Init, after which signals do what they did before.
void begin() {
  constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before{};
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before[i]);
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);  // Open MPI: who waits here yields by itself (Backoff)
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
  require<CommError>(level >= MPI_THREAD_FUNNELED,
                     "{} cannot be used by a process of several threads; set run.transport = sockets",
                     library());
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

}  // namespace

std::string library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  // "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n..."
  std::string name(text.data(), 0, static_cast<size_t>(length));
  name.resize(std::min(name.find_first_of(",\n"), name.size()));
  if (const size_t at = name.find("Version:\t"); at != std::string::npos) name.erase(at, 9);
  return name;
}

std::shared_ptr<messages::Messenger> make_messenger(Control& control) {
  if (!begun()) begin();
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  require<ConfigError>(rank == control.rank() && size == control.size(),
                       "{} counts this process as rank {} of {}, but it is rank {} of {}: start it with that "
                       "MPI's own mpirun, or set run.transport = sockets",
                       library(), rank, size, control.rank(), control.size());
  return std::make_shared<MpiMessenger>(control);
}

void end() {
  if (begun()) MPI_Finalize();
}

}  // namespace moesaic::mpi
