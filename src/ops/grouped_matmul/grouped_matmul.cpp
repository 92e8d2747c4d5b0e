#include "ops/grouped_matmul/grouped_matmul.h"

#include <algorithm>

#include "ops/grouped_matmul/grouped_matmul_bodies.h"
#include "ops/grouped_matmul/grouped_scratch.h"
#include "ops/op.h"

namespace moesaic::ops {
namespace {

bool is_map_of(const Program& g, Handle map, int64_t num_rows) {
  return !map || (g.dtype(map) == DType::i32 && g.shape(map).numel() == num_rows);
}

double operations(const Shape& w, double rows) {
  return 2 * rows * static_cast<double>(w[1]) * static_cast<double>(w[2]);
}

/// Whether tensor cores can make it on the GPU: addresses of 16 bytes at every row.
bool is_regular(const Program& g, const Shape& w, std::initializer_list<Handle> narrow) {
  for (Handle h : narrow)
    if (g.dtype(h) != DType::bf16) return false;
  return w[1] > 0 && w[1] % 8 == 0 && w[2] > 0 && w[2] % 8 == 0;
}

int64_t scratch_bytes(const Shape& w) {
  return kTensorMapBytes + GroupedScratch::table_bytes(w[0]);
}

/// Bytes for the rows of x that a map leads to.
int64_t gathered_bytes(const Program& g, Handle x, Handle map) {
  return map ? GroupedScratch::rows_bytes(g.shape(map).numel(), g.shape(x)[-1]) : 0;
}

}  // namespace

int64_t grouped_matmul_scratch(const Program& g, const GroupedMatmul& args) {
  const Shape& w = g.shape(args.w);
  if (!is_regular(g, w, {args.x, args.w, args.y})) return 0;
  return scratch_bytes(w) + (args.x_in_order ? 0 : gathered_bytes(g, args.x, args.x_rows));
}

int64_t grouped_matmul_weight_grad_scratch(const Program& g, const GroupedMatmulWeightGrad& args) {
  const Shape& w = g.shape(args.dw);
  if (!is_regular(g, w, {args.dy, args.x})) return 0;
  return scratch_bytes(w) + gathered_bytes(g, args.dy, args.dy_rows) + gathered_bytes(g, args.x, args.x_rows);
}

void grouped_matmul(Program& g, Stream stream, const GroupedMatmul& args) {
  const Shape x = g.shape(args.x), w = g.shape(args.w), y = g.shape(args.y), offsets = g.shape(args.offsets);
  MOESAIC_CHECK(w.num_dims() == 3 && offsets.numel() == w[0] + 1, "weights {}, offsets {}", w.str(),
                offsets.str());
  MOESAIC_CHECK(x[-1] == w[args.trans_w ? 2 : 1] && y[-1] == w[args.trans_w ? 1 : 2], "{} times {} to {}",
                x.str(), w.str(), y.str());
  MOESAIC_CHECK(args.x_rows ? is_map_of(g, args.x_rows, y.rows()) : x.rows() == y.rows());
  MOESAIC_CHECK(is_float(g.dtype(args.x)) && g.dtype(args.w) == g.dtype(args.x) && is_float(g.dtype(args.y)));
  MOESAIC_CHECK(g.dtype(args.offsets) == DType::i32);
  const bool in_parts = args.part != GroupedMatmul::Part::all;
  MOESAIC_CHECK(bool(args.split) == in_parts && is_map_of(g, args.split, w[0]),
                "a split for each of {} groups", w[0]);
  if (args.x_in_order) {
    MOESAIC_CHECK(args.x_rows, "x_in_order, but no x_rows");
    MOESAIC_CHECK(
        g.shape(args.x_in_order) == Shape({y.rows(), x[-1]}) && g.dtype(args.x_in_order) == g.dtype(args.x),
        "{} in order from {}", g.shape(args.x_in_order).str(), x.str());
  }
  GroupedMatmul with_scratch = args;
  with_scratch.scratch = scratch(g, "grouped_matmul", grouped_matmul_scratch(g, args));
  g.add(
      {.name = "grouped_matmul",
       .streams = {stream},
       .accesses = accesses({in(args.x), in(args.x_rows), in(args.w), in(args.offsets), in(args.split),
                             out(args.y), out(args.x_in_order), out(with_scratch.scratch)}),
       .cost = {.work = Work::grouped_matmul,
                .operations = operations(w, args.expected_rows),
                .bytes = args.expected_rows * row_bytes(g, {args.x, args.x_in_order, args.y}, {args.x_rows}) +
                         bytes_of(g, {args.w, args.offsets, args.split}),
                .m = static_cast<int64_t>(args.expected_rows),
                .n = y[-1],
                .k = x[-1]},
       .run = body(g, grouped_matmul_cpu, grouped_matmul_cuda, with_scratch)});
}

void grouped_matmul_weight_grad(Program& g, Stream stream, const GroupedMatmulWeightGrad& args) {
  const Shape dy = g.shape(args.dy), x = g.shape(args.x), dw = g.shape(args.dw),
              offsets = g.shape(args.offsets);
  MOESAIC_CHECK(dw.num_dims() == 3 && offsets.numel() == dw[0] + 1, "weights {}, offsets {}", dw.str(),
                offsets.str());
  MOESAIC_CHECK(dy[-1] == dw[1] && x[-1] == dw[2], "{} and {} to {}", dy.str(), x.str(), dw.str());
  const int64_t num_rows = args.dy_rows ? g.shape(args.dy_rows).numel() : dy.rows();
  MOESAIC_CHECK(is_map_of(g, args.dy_rows, num_rows) && is_map_of(g, args.x_rows, num_rows));
  MOESAIC_CHECK(args.x_rows || x.rows() == num_rows, "{} rows of x for {} of dy", x.rows(), num_rows);
  MOESAIC_CHECK(is_float(g.dtype(args.dy)) && is_float(g.dtype(args.x)) && g.dtype(args.dw) == DType::f32);
  MOESAIC_CHECK(g.dtype(args.offsets) == DType::i32);
  GroupedMatmulWeightGrad with_scratch = args;
  with_scratch.scratch =
      scratch(g, "grouped_matmul_weight_grad", grouped_matmul_weight_grad_scratch(g, args));
  g.add({.name = "grouped_matmul_weight_grad",
         .streams = {stream},
         .accesses = accesses({in(args.dy), in(args.dy_rows), in(args.x), in(args.x_rows), in(args.offsets),
                               args.accumulate ? inout(args.dw) : out(args.dw), out(with_scratch.scratch)}),
         .cost = {.work = Work::grouped_matmul,
                  .operations = operations(dw, args.expected_rows),
                  .bytes = args.expected_rows * row_bytes(g, {args.dy, args.x}, {args.dy_rows, args.x_rows}) +
                           bytes_of(g, {args.offsets, args.dw, args.accumulate ? args.dw : Handle{}}),
                  .m = dw[1],
                  .n = dw[2],
                  .k = static_cast<int64_t>(args.expected_rows) / std::max<int64_t>(dw[0], 1),
                  .adds = args.accumulate},
         .run = body(g, grouped_matmul_weight_grad_cpu, grouped_matmul_weight_grad_cuda, with_scratch)});
}

}  // namespace moesaic::ops
