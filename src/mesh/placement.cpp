#include "mesh/placement.h"

#include "base/check.h"

namespace moesaic {

ExpertPlacement::ExpertPlacement(std::vector<int64_t> owners, int64_t num_owners)
    : owners_(std::move(owners)) {
  MOESAIC_CHECK(num_owners >= 1);
  local_.resize(static_cast<size_t>(num_owners));
  for (size_t expert = 0; expert < owners_.size(); ++expert) {
    MOESAIC_CHECK(owners_[expert] >= 0 && owners_[expert] < num_owners, "expert {} on owner {} of {}", expert,
                  owners_[expert], num_owners);
    std::vector<int64_t>& mates = local_[static_cast<size_t>(owners_[expert])];
    slots_.push_back(static_cast<int64_t>(mates.size()));
    mates.push_back(static_cast<int64_t>(expert));
  }
}

ExpertPlacement ExpertPlacement::contiguous(int64_t num_experts, int64_t num_owners) {
  const int64_t local = div_exact(num_experts, num_owners);
  std::vector<int64_t> owners(static_cast<size_t>(num_experts));
  for (int64_t expert = 0; expert < num_experts; ++expert)
    owners[static_cast<size_t>(expert)] = expert / local;
  return {std::move(owners), num_owners};
}

}  // namespace moesaic
