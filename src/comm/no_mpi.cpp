// A build without MPI: ranks that are processes talk through sockets, whatever started them.
#include "base/error.h"
#include "comm/mpi/mpi.h"

namespace moesaic::mpi {

std::string library() {
  return {};
}

std::shared_ptr<messages::Messenger> make_messenger(Control&) {
  fail<ConfigError>("this build has no MPI; configure with -DMOESAIC_MPI=ON, or set run.transport = sockets");
}

void end() {}

}  // namespace moesaic::mpi
