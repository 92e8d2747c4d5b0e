#include "tensor/parameter_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"

namespace moesaic {

void ParameterTable::begin_bucket(std::string name, Replicas replicas, int64_t num_replicas) {
  buckets_.push_back({std::move(name), replicas, num_replicas, 0, 0});
}

void ParameterTable::add(ParameterRow row) {
  MOESAIC_CHECK(!buckets_.empty());
  Bucket& bucket = buckets_.back();
  row.bucket = static_cast<int32_t>(buckets_.size() - 1);
  row.offset = bucket.numel;
  bucket.numel += row.shape.numel();
  rows_.push_back(std::move(row));
}

void ParameterTable::finish() {
  for (Bucket& bucket : buckets_) bucket.padded = round_up(bucket.numel, 64 * bucket.num_replicas);
}

int32_t ParameterTable::bucket(const std::string& name) const {
  const auto it =
      std::find_if(buckets_.begin(), buckets_.end(), [&](const Bucket& b) { return b.name == name; });
  MOESAIC_CHECK(it != buckets_.end(), "no bucket {}", name);
  return static_cast<int32_t>(it - buckets_.begin());
}

ParameterTable::Place ParameterTable::place(const std::string& device_tensor) const {
  const auto same = [&](const ParameterRow& row) { return row.device_tensor == device_tensor; };
  const auto first = std::find_if(rows_.begin(), rows_.end(), same);
  MOESAIC_CHECK(first != rows_.end(), "no device tensor {}", device_tensor);
  Place place{first->bucket, first->offset, 0};
  for (auto row = first; row != rows_.end() && same(*row); ++row) place.numel += row->shape.numel();
  return place;
}

int64_t ParameterTable::num_parameters() const {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets_) sum += bucket.numel;
  return sum;
}

}  // namespace moesaic
