#pragma once
// RMSNorm over the last dim (Zhang and Sennrich, 2019), or with a bias LayerNorm (Ba et al., 2016), with an optional
// residual addition in front.
#include "device/program.h"

namespace moesaic::ops {

/// s = x + residual (residual absent: s = x), rstd = 1 / sqrt(mean(s^2) + eps), y = s * rstd * gain.
/// x, residual, y, sum: [T, D] f32 or bf16; gain: [D] f32 or bf16; rstd: [T] f32. `sum` = s is written when
/// present (required with residual); with BF16, rstd and y are computed from the rounded s. rstd is optional.
/// bias [D], of gain's type, makes it LayerNorm: c = s - mean(s) takes the place of s in rstd and y, and bias is added to
/// y.
/// Cost: 4 operations an element (5 with residual, 3 more with bias), each tensor once.
struct RmsNormForward {
  Handle x, residual, gain, sum, y, rstd;
  float eps = 1e-5f;
  Handle bias{};
};
void rmsnorm_forward(Program& g, Stream stream, const RmsNormForward& args);

/// dx = add + rstd * (dy gain - s rstd^2 mean(dy gain s)); dgain += sum over rows of dy s rstd.
/// x = s of the forward pass; `add` [T, D] optional (the residual's gradient); dgain [D] f32. rstd is
/// recomputed from x when absent. dx may be dy or add. The sum over rows is taken in blocks of 64 rows.
/// d_bias [D] f32 says that the forward pass was LayerNorm: c = x - mean(x) takes the place of s, the mean of dy gain rstd is
/// taken from dx, and d_bias += sum over rows of dy.
/// Cost: 9 operations an element (1 more with add, 2 without rstd, 5 with d_bias), each tensor once, dgain and d_bias twice.
struct RmsNormBackward {
  Handle dy, x, gain, rstd, add, dx, dgain;
  float eps = 1e-5f;
  Handle scratch;  // CUDA's working memory; filled in by the op
  Handle d_bias{};
};
void rmsnorm_backward(Program& g, Stream stream, const RmsNormBackward& given);

}  // namespace moesaic::ops
