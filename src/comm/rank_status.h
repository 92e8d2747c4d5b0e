#pragma once
// What a rank was doing when it was last heard of, in the words of every message about ranks.
#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

struct RankStatus {
  int64_t step = -1;  // -1: before the first
  std::string operation = "start";
  bool operator==(const RankStatus&) const = default;
};

/// "rank 2", "ranks 0-2, 5"; `ranks` ascend.
std::string name_ranks(const std::vector<int64_t>& ranks);

/// "rank 2 (step 5, last operation: all_gather tokens)"
std::string describe(int64_t rank, const RankStatus& status);

/// The same for many ranks, those that do the same together: "ranks 0-2, 5 (step 5, last operation: barrier), rank 3 (...)".
/// The most frequent first; past eight kinds the rest is counted only.
std::string describe(const std::vector<int64_t>& ranks, const std::vector<RankStatus>& statuses);

}  // namespace moesaic
