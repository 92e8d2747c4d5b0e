#include "ops/rows/rows.h"

#include <algorithm>

#include "ops/op.h"
#include "ops/rows/rows_bodies.h"

namespace moesaic::ops {

void gather_rows(Program& g, Stream stream, const GatherRows& args) {
  MOESAIC_CHECK(g.shape(args.x)[-1] == g.shape(args.y)[-1] && g.dtype(args.x) == g.dtype(args.y));
  MOESAIC_CHECK(g.dtype(args.map) == DType::i32 && g.shape(args.map).numel() == g.shape(args.y).rows());
  MOESAIC_CHECK(!args.count_of || g.dtype(args.count_of) == DType::i32);
  g.add({.name = "gather_rows",
         .streams = {stream},
         .accesses = accesses({in(args.x), in(args.map), in(args.count_of), out(args.y)}),
         .cost = {.bytes = args.expected_rows * row_bytes(g, {args.x, args.y}, {args.map}) +
                           count_bytes(args.count_of)},
         .run = body(g, gather_rows_cpu, gather_rows_cuda, args)});
}

void sum_rows(Program& g, Stream stream, const SumRows& args) {
  const Shape &x = g.shape(args.x), &map = g.shape(args.map), &y = g.shape(args.y);
  MOESAIC_CHECK(x[-1] == y[-1] && is_float(g.dtype(args.x)) && is_float(g.dtype(args.y)));
  MOESAIC_CHECK(g.dtype(args.map) == DType::i32 && (args.map_row || map.rows() >= y.rows()), "map {} for {}",
                map.str(), y.str());
  MOESAIC_CHECK(!args.map_row ||
                (g.dtype(args.map_row) == DType::i32 && g.shape(args.map_row).numel() == y.rows()));
  MOESAIC_CHECK(!args.add || (is_float(g.dtype(args.add)) && g.shape(args.add).numel() == y.numel()));
  MOESAIC_CHECK(!args.count_of || g.dtype(args.count_of) == DType::i32);
  const double written = std::min(args.expected_rows, static_cast<double>(y.rows()));
  g.add({.name = "sum_rows",
         .streams = {stream},
         .accesses = accesses(
             {in(args.x), in(args.map), in(args.map_row), in(args.count_of), in(args.add), out(args.y)}),
         .cost = {.operations = args.expected_rows * static_cast<double>(x[-1]),
                  .bytes = args.expected_rows * row_bytes(g, {args.x}) +
                           written * row_bytes(g, {args.add, args.y, args.map}, {args.map_row}) +
                           count_bytes(args.count_of)},
         .run = body(g, sum_rows_cpu, sum_rows_cuda, args)});
}

}  // namespace moesaic::ops
