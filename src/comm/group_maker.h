#pragma once
// This rank's end of a group of global ranks, which must contain it. Every member asks for its groups in the same order; asking
// again for the same ranks makes a second, independent group.
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace moesaic {

using GroupMaker = std::function<std::unique_ptr<Communicator>(const std::vector<int64_t>& ranks)>;

}  // namespace moesaic
