#include "mesh/mesh.h"

#include <array>

#include "base/check.h"
#include "base/error.h"

namespace moesaic {

int64_t num_expert_ranks(const LayoutConfig& layout) {
  return layout.e == 0 ? layout.n : layout.e;
}

void validate_mesh(const LayoutConfig& layout) {
  const auto [pp, dp, n] = std::array{layout.pp, layout.dp, layout.n};
  const int64_t e = num_expert_ranks(layout);
  for (const int64_t size : {pp, dp, n, e}) {
    require<ConfigError>(
        size >= 1 && size <= kMaxRanks,
        "layout.pp = {}, layout.dp = {}, layout.n = {}, layout.e = {}: expected each from 1 to {}", pp, dp, n,
        e, kMaxRanks);
  }
  require<ConfigError>(pp * dp * n <= kMaxRanks,
                       "layout.pp * layout.dp * layout.n = {} * {} * {} = {} ranks, expected at most {}", pp,
                       dp, n, pp * dp * n, kMaxRanks);
  require<ConfigError>(
      dp * n % e == 0,
      "layout.e = {} does not divide the layout.dp * layout.n = {} * {} = {} ranks of a stage", e, dp, n,
      dp * n);
  require<ConfigError>(
      e % n == 0 || n % e == 0,
      "layout.e = {} and layout.n = {}: one must divide the other, so that the ranks that share the "
      "experts are whole sequence groups or lie within one",
      e, n);
}

Mesh::Mesh(const LayoutConfig& layout)
    : pp_(layout.pp), dp_(layout.dp), n_(layout.n), e_(num_expert_ranks(layout)) {
  validate_mesh(layout);
}

Coords Mesh::coords(int64_t rank) const {
  MOESAIC_CHECK(rank >= 0 && rank < world_size(), "rank {} of {}", rank, world_size());
  const int64_t q = rank % (dp_ * n_);
  return {.pp = rank / (dp_ * n_), .dp = q / n_, .n = q % n_, .edp = q / e_, .e = q % e_};
}

int64_t Mesh::rank_of(int64_t pp, int64_t dp, int64_t n) const {
  MOESAIC_CHECK(pp >= 0 && pp < pp_ && dp >= 0 && dp < dp_ && n >= 0 && n < n_, "({}, {}, {})", pp, dp, n);
  return (pp * dp_ + dp) * n_ + n;
}

int64_t Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::world:
      return world_size();
    case Axis::stage:
      return dp_ * n_;
    case Axis::n:
      return n_;
    case Axis::dp:
      return dp_;
    case Axis::e:
      return e_;
    case Axis::edp:
      return dp_ * n_ / e_;
    case Axis::pp:
      return pp_;
  }
  return 0;
}

int64_t Mesh::stride(Axis axis) const {
  switch (axis) {
    case Axis::dp:
      return n_;
    case Axis::edp:
      return e_;
    case Axis::pp:
      return dp_ * n_;
    default:
      return 1;
  }
}

int64_t Mesh::index(Axis axis, int64_t rank) const {
  const Coords at = coords(rank);
  switch (axis) {
    case Axis::world:
      return rank;
    case Axis::stage:
      return rank % (dp_ * n_);
    case Axis::n:
      return at.n;
    case Axis::dp:
      return at.dp;
    case Axis::e:
      return at.e;
    case Axis::edp:
      return at.edp;
    case Axis::pp:
      return at.pp;
  }
  return 0;
}

std::vector<int64_t> Mesh::group(Axis axis, int64_t rank) const {
  const int64_t first = rank - index(axis, rank) * stride(axis);
  std::vector<int64_t> ranks(static_cast<size_t>(size(axis)));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = first + static_cast<int64_t>(i) * stride(axis);
  return ranks;
}

}  // namespace moesaic
