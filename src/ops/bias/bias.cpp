#include "ops/bias/bias.h"

#include <algorithm>

#include "ops/bias/bias_bodies.h"
#include "ops/bias/row_sums_cuda.h"
#include "ops/op.h"

namespace moesaic::ops {

void add_bias(Program& g, Stream stream, Handle x, Handle bias) {
  MOESAIC_CHECK(is_float(g.dtype(x)) && is_float(g.dtype(bias)));
  MOESAIC_CHECK(g.shape(bias).numel() == g.shape(x)[-1], "{} to rows of {}", g.shape(bias).str(),
                g.shape(x).str());
  g.add({.name = "add_bias",
         .streams = {stream},
         .accesses = {inout(x), in(bias)},
         .cost = {.operations = static_cast<double>(g.shape(x).numel()), .bytes = bytes_of(g, {x, x, bias})},
         .run = body(g, add_bias_cpu, add_bias_cuda, AddBias{x, bias})});
}

int64_t row_sums_blocks(int64_t num_rows, int64_t width) {
  constexpr int64_t kBlocks = 132 * 8, kColumns = 256,
                    kRows = 8;  // in all; of a block, with the widest packs
  return std::clamp<int64_t>(kBlocks / ceil_div(width, kColumns), 1,
                             std::max<int64_t>(1, ceil_div(num_rows, kRows)));
}

int64_t row_sums_scratch(int64_t num_rows, int64_t width) {
  return 4 * width * row_sums_blocks(num_rows, width);
}

void bias_backward(Program& g, Stream stream, Handle dy, Handle d_bias) {
  MOESAIC_CHECK(is_float(g.dtype(dy)) && g.dtype(d_bias) == DType::f32);
  MOESAIC_CHECK(g.shape(d_bias).numel() == g.shape(dy)[-1], "{} from rows of {}", g.shape(d_bias).str(),
                g.shape(dy).str());
  const BiasBackward args{dy, d_bias,
                          scratch(g, "bias_backward", row_sums_scratch(g.shape(dy).rows(), g.shape(dy)[-1]))};
  g.add({.name = "bias_backward",
         .streams = {stream},
         .accesses = accesses({in(dy), inout(d_bias), out(args.scratch)}),
         .cost = {.operations = static_cast<double>(g.shape(dy).numel()),
                  .bytes = bytes_of(g, {dy, d_bias, d_bias})},
         .run = body(g, bias_backward_cpu, bias_backward_cuda, args)});
}

}  // namespace moesaic::ops
