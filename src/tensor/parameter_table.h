#pragma once
// The one table of parameters of a pipeline stage on one rank. It drives allocation, initial values, reduction, the
// optimizer, checkpoints, import and export.
//
// A row is a logical tensor (q, k, v, w1 of expert 5 ...), under the name that files use. Its second column is the device
// layout that only layers see: rows that follow each other with the same `device_tensor` are one fused or stacked tensor
// on the device ([q; k; v] or w13 of all local experts). Rows are packed into buckets: flat arrays with the same
// offsets for weights, gradients and optimizer state, one bucket per layer and set of replicas.
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace moesaic {

/// Which ranks hold the same values of a parameter, hence over which its gradient is summed and its optimizer state is
/// sharded.
enum class Replicas : uint8_t {
  stage,  // all dp*n ranks of the stage: dense parameters under sp and batch attention
  edp,    // the ranks that hold the same experts
};

enum class Init : uint8_t { normal, ones };

struct ParameterRow {
  std::string name;  // "layers.3.experts.5.w1"
  Shape shape;       // of the logical tensor
  Init init = Init::normal;
  double std = 0;             // of normal
  bool decay = false;         // weight decay applies
  std::string device_tensor;  // "layers.3.experts.w13"
  int32_t bucket = -1;
  int64_t offset = 0;  // elements from the bucket's start
  float mean() const { return init == Init::ones ? 1.0f : 0.0f; }
};

struct Bucket {
  std::string name;  // "layers.3.experts"
  Replicas replicas = Replicas::stage;
  int64_t num_replicas = 1;  // size of the reduction group
  int64_t numel = 0;         // of real parameters
  int64_t padded =
      0;  // rounded up to a multiple of 2 * num_replicas (and of 64), so that shards are equal and even
  int64_t shard() const { return padded / num_replicas; }
};

class ParameterTable {
 public:
  /// Starts a bucket; rows added from now on go into it.
  void begin_bucket(std::string name, Replicas replicas, int64_t num_replicas);
  /// Appends a row to the current bucket.
  void add(ParameterRow row);
  /// Pads the buckets; no rows can be added any more.
  void finish();

  const std::vector<ParameterRow>& rows() const { return rows_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Index of a bucket by name.
  int32_t bucket(const std::string& name) const;
  /// Elements from the bucket's start to a device tensor, and its elements.
  struct Place {
    int32_t bucket;
    int64_t offset, numel;
  };
  Place place(const std::string& device_tensor) const;
  int64_t num_parameters() const;

 private:
  std::vector<ParameterRow> rows_;
  std::vector<Bucket> buckets_;
};

}  // namespace moesaic
