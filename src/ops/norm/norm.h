#pragma once
// The global gradient norm and the step's verdict, on the device, so that no host wait stands inside a step.
#include "device/program.h"

namespace moesaic::ops {

/// out f32 [1] = sum of squares of x f32 [N] (pairwise over blocks, FP64 between blocks). NaN and Inf come
/// through. Cost: 2 operations an element; x once.
void sum_of_squares(Program& g, Stream stream, Handle x, Handle out);

/// The number of elements that are NaN or Inf: out i32 [1]. Cost: 2 operations an element; x once.
void count_nonfinite(Program& g, Stream stream, Handle x, Handle out);

/// parts f32 [P]: sums of squares of the shards, each real parameter once; overflow i32 [L]: rows asked for
/// above the bound, 0 = none (over all ranks); counted i32 [1]: counted tokens of the step. grad_norm f32 [1]
/// = sqrt(sum of parts); clip_scale f32 [1] = min(1, clip / grad_norm), 1 when clip is 0; ok i32 [1] = 1 when
/// the norm is finite, counted > 0 and (unless drop_overflow) no overflow, else 0. Cost: P + L operations, every tensor once.
struct Verdict {
  Handle parts, overflow, counted, grad_norm, clip_scale, ok;
  float clip = 0;
  bool drop_overflow = false;
};
void verdict(Program& g, Stream stream, const Verdict& args);

}  // namespace moesaic::ops
