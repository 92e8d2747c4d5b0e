#pragma once
// What a rank's shards hold, as ranges of logical tensors: the one description that saving and loading share.
#include <algorithm>
#include <string>
#include <vector>

#include "train/session.h"

namespace moesaic {

/// A range of a parameter's row that lies in this rank's shard of the row's bucket.
struct ShardRange {
  int64_t in_row = 0, in_shard = 0, count = 0;  // elements
};

inline ShardRange shard_range(Session& session, const ParameterRow& row) {
  const Bucket& bucket = session.stage().table().buckets()[static_cast<size_t>(row.bucket)];
  const int64_t first = session.reducer().shard_index(row.bucket) * bucket.shard();
  const int64_t begin = std::max(row.offset, first);
  const int64_t end = std::min(row.offset + row.shape.numel(), first + bucket.shard());
  return {begin - row.offset, begin - first, std::max<int64_t>(end - begin, 0)};
}

/// One array over a bucket's shard on the device.
struct ShardArray {
  std::string kind;  // as in checkpoint/piece.h
  DType dtype;
  std::byte* memory;
};

/// The arrays of this rank's shard of a bucket: weights, then the optimizer's state. Requires: the session trains.
inline std::vector<ShardArray> shard_arrays(Session& session, int32_t bucket) {
  Stage& stage = session.stage();
  const DType type = stage.spec().dtype;
  const int64_t first =
      session.reducer().shard_index(bucket) * stage.table().buckets()[static_cast<size_t>(bucket)].shard();
  std::vector<ShardArray> arrays{{"weight", type, stage.weights(bucket) + first * size_of(type)}};
  for (const Optimizer::State& state : session.optimizer().states())
    arrays.push_back({state.kind, state.dtype, state.shards[static_cast<size_t>(bucket)]});
  return arrays;
}

/// Calls f(name, memory) for the router bias of each layer that has one: [E] f32, the same on every rank.
template <class F>
void for_each_router_bias(Stage& stage, const F& f) {
  const ModelConfig& m = stage.spec().model;
  if (!m.router.selection_bias) return;
  for (int64_t i = m.num_dense_layers; i < m.num_layers; ++i)
    f(fmt::format("layers.{}.moe.router_bias", i), stage.router_bias(i));
}

/// The extents of a shape.
inline std::vector<int64_t> extents(const Shape& shape) {
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(shape.num_dims()));
  for (int i = 0; i < shape.num_dims(); ++i) all.push_back(shape[i]);
  return all;
}

}  // namespace moesaic
