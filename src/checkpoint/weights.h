#pragma once
// The weights of a checkpoint by themselves, whichever layout and compute type they were saved with: what export and a new
// run that starts from them need.
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace moesaic {

struct StoredWeight {
  std::string name;  // as in the parameter table
  DType dtype;       // f32 or bf16
  std::vector<int64_t> shape;
  bool has_remainder = false;  // bf16 only: the lower half of its FP32 master is there too
};

/// All tensors of kind "weight", sorted by name. IoError for one that is neither f32 nor bf16.
std::vector<StoredWeight> stored_weights(const CheckpointReader& reader);

/// The whole tensor in FP32: an f32 weight as it is; a bf16 weight with its remainder gives the master, without it itself.
std::vector<float> read_master(const CheckpointReader& reader, const StoredWeight& weight);

/// True unless the checkpoint holds anything besides weights and router biases: a run cannot be resumed from weights alone.
bool holds_weights_alone(const CheckpointReader& reader);

}  // namespace moesaic
