#pragma once
// Where a rank stands. The world is pp * dp * n ranks; rank = (pp_i * dp + dp_i) * n + n_i. The dp*n ranks of
// a pipeline stage, numbered q = dp_i * n + n_i, are also edp * e ranks for the experts: e_i = q % e, edp_i =
// q / e.
//
//   axis    its ranks share ...                                        ranks in order of
//   world   the run                                                    rank
//   stage   a pipeline stage                                           q
//   n       a sequence and a dense layer                               n_i
//   dp      a dense shard: they hold replicas of it                    dp_i
//   e       one copy of all the experts                                e_i
//   edp     the same experts: they hold replicas of them               edp_i
//   pp      a place in their stages: they pass activations on          pp_i
#include <cstdint>
#include <vector>

#include "config/config.h"

namespace moesaic {

enum class Axis { world, stage, n, dp, e, edp, pp };

struct Coords {
  int64_t pp = 0;
  int64_t dp = 0;
  int64_t n = 0;
  int64_t edp = 0;
  int64_t e = 0;
  bool operator==(const Coords&) const = default;
};

/// e itself, or n where layout.e = 0.
int64_t num_expert_ranks(const LayoutConfig& layout);

/// The rules of the mesh alone: at most kMaxRanks ranks; e divides dp*n; and e divides n or n divides e, so
/// that an expert group lies within a sequence group or is made of whole ones. Throws ConfigError.
void validate_mesh(const LayoutConfig& layout);

inline constexpr int64_t kMaxRanks = 1 << 16;

class Mesh {
 public:
  /// Throws ConfigError as validate_mesh does.
  explicit Mesh(const LayoutConfig& layout);

  int64_t world_size() const { return pp_ * dp_ * n_; }
  Coords coords(int64_t rank) const;
  int64_t rank_of(int64_t pp, int64_t dp, int64_t n) const;

  /// Ranks in one group of the axis.
  int64_t size(Axis axis) const;
  /// The rank's place within its group of the axis.
  int64_t index(Axis axis, int64_t rank) const;
  /// The global ranks of that group, in order: group(axis, rank)[index(axis, rank)] == rank.
  std::vector<int64_t> group(Axis axis, int64_t rank) const;

 private:
  int64_t stride(Axis axis) const;

  int64_t pp_;
  int64_t dp_;
  int64_t n_;
  int64_t e_;
};

}  // namespace moesaic
