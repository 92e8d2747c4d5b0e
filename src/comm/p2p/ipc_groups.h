#pragma once
// Groups of ranks that are processes of one machine, one GPU or a share of one each. They meet in shared memory
// (meeting/shared_boards.h) and move data as threads do: each opens the others' GPU memory and events through the handles that
// CUDA has for other processes, so copies, sums and results are the same to the last bit.
#include <string>

#include "comm/control.h"
#include "comm/group_maker.h"

namespace moesaic {

/// Called by all ranks together, on the thread that has chosen its GPU. `machine`: what ranks of one machine have in common. What
/// it returns makes groups of ranks of this machine, and waits until all members of a group have asked for it. What was kept for
/// the others must outlive their last collective: let the GroupMaker go only when all ranks have ended. Throws ConfigError, on
/// all ranks, when one cannot reach the GPU memory of another of its machine, and in a build without CUDA.
GroupMaker make_ipc_groups(Control& control, const std::string& machine);

}  // namespace moesaic
