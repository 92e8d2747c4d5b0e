#pragma once
// Which rank of an expert group holds which expert, and where: a table, read everywhere, so that another
// placement changes nothing but the table.
#include <cstdint>
#include <span>
#include <vector>

namespace moesaic {

class ExpertPlacement {
 public:
  /// owners[expert] = e-index in [0, num_owners); an owner's experts take its slots in increasing order of
  /// expert.
  ExpertPlacement(std::vector<int64_t> owners, int64_t num_owners);
  /// E / e experts in a row for each owner. Requires that num_owners divides num_experts.
  static ExpertPlacement contiguous(int64_t num_experts, int64_t num_owners);

  int64_t num_experts() const { return static_cast<int64_t>(owners_.size()); }
  int64_t num_owners() const { return static_cast<int64_t>(local_.size()); }
  int64_t owner(int64_t expert) const { return owners_.at(static_cast<size_t>(expert)); }
  /// The expert's place among its owner's experts.
  int64_t slot(int64_t expert) const { return slots_.at(static_cast<size_t>(expert)); }
  /// The experts of an owner, by slot.
  std::span<const int64_t> local_experts(int64_t owner) const {
    return local_.at(static_cast<size_t>(owner));
  }

  /// Both tables by expert, as ops take them.
  std::span<const int64_t> owners() const { return owners_; }
  std::span<const int64_t> slots() const { return slots_; }

 private:
  std::vector<int64_t> owners_;
  std::vector<int64_t> slots_;
  std::vector<std::vector<int64_t>> local_;
};

}  // namespace moesaic
