#pragma once
// Optimizer steps on one contiguous shard of one bucket. Nothing is touched when ok (i32 [1]) is 0.
//
// Storage of the master weight: f32 parameters are their own master. A bf16 parameter and `remainder` (u16 [N], read as a
// signed 16-bit number) are the FP32 master together: bits of master = bits of parameter * 2^16 + remainder. So the
// parameter is the master rounded to nearest (ties away from zero), and weight and master take 4 bytes.
#include <vector>

#include "device/program.h"

namespace moesaic::ops {

/// Elements [begin, end) of a shard.
struct ElementRange {
  int64_t begin, end;
};

/// A shard: param [N] f32 or bf16, grad [N] f32, remainder u16 [N] (bf16 only). decay: where weight decay applies,
/// ascending, without overlap; it follows from the parameter table, so it takes no device memory.
/// scalars f32 [3]: learning rate, 1 - beta1^t, 1 - beta2^t (t counts done updates, this one included).
/// clip_scale f32 [1] multiplies the gradient; ok i32 [1].
struct OptimizerShard {
  Handle param, remainder, grad, scalars, clip_scale, ok;
  std::vector<ElementRange> decay;
};

/// AdamW (Loshchilov and Hutter, 2019): m, v f32 [N]; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w).
/// Cost: 15 operations an element (2 more where weight decay applies); what is updated twice, the gradient once.
struct AdamW {
  OptimizerShard shard;
  Handle m, v;
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
};
void adamw(Program& g, Stream stream, const AdamW& args);

/// SGD: u = momentum u + (g + weight_decay w); w -= lr u. momentum_buffer f32 [N], absent when momentum is 0.
/// Cost: 3 operations an element (2 more with momentum, 2 where weight decay applies); bytes as of AdamW.
struct Sgd {
  OptimizerShard shard;
  Handle momentum_buffer;
  float momentum = 0, weight_decay = 0;
};
void sgd(Program& g, Stream stream, const Sgd& args);

}  // namespace moesaic::ops
