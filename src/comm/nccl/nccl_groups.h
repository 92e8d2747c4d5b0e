#pragma once
// Groups of GPU ranks that are not all on one machine: NCCL moves their data. Before each call the members' hosts agree through
// messages (messages/operation.h) that all of them make it, with the same size: ranks that disagree, stay away or die are found
// out as everywhere else, and NCCL's kernels are enqueued only where all members do so. Sums are taken by ourselves, in rank order,
// from parts that NCCL has brought (CudaMover::sum): equal to those within a machine to the last bit.
//
// Memory beside the arena's: NCCL's own, and per group up to 64 MiB in which parts of a sum are gathered, or for
// all_to_all_blocks twice the pieces. all_to_all_rows waits on the host for the numbers of rows, which lie on the device: experts
// that are spread over machines run faster with layout.dispatch = ag_rs, which has no such wait.
#include <memory>

#include "comm/group_maker.h"
#include "comm/messages/messenger.h"

namespace moesaic {

/// On the thread that has chosen its GPU. What it returns waits until all members have asked for their group; `messenger` joins
/// them, NCCL's id goes round through it. Throws ConfigError when two members share a GPU, which NCCL refuses, and in a build
/// without CUDA; DeviceError with NCCL's words when it fails.
GroupMaker make_nccl_groups(const std::shared_ptr<messages::Messenger>& messenger);

}  // namespace moesaic
