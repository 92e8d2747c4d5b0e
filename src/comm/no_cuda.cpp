// Moving data between GPUs in a build without CUDA: no rank there has a GPU (device/no_cuda.cpp).
#include "base/error.h"
#include "comm/meeting/mover.h"
#include "comm/nccl/nccl_groups.h"
#include "comm/p2p/ipc_groups.h"

namespace moesaic {

namespace {

[[noreturn]] void refuse() {
  fail<ConfigError>("this build has no CUDA; build with cmake --preset cuda, or set run.device = cpu");
}

}  // namespace

std::unique_ptr<Mover> make_cuda_mover() {
  refuse();
}
GroupMaker make_ipc_groups(Control&, const std::string&) {
  refuse();
}
GroupMaker make_nccl_groups(const std::shared_ptr<messages::Messenger>&) {
  refuse();
}

}  // namespace moesaic
