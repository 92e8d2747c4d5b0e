#pragma once
// Moving and adding rows by index: packing for dispatch, adding up a token's expert rows in combine.
#include "device/program.h"

namespace moesaic::ops {

/// y[i] = x[map[i]] for i < count. x [*, W], y [N, W], the same dtype; map i32 [N]. count_of: i32 [*], its
/// last element = number of rows (absent: all N); rows after it are not written. expected_rows: rows gathered, for the
/// cost: no operations; x, y and map rows once.
struct GatherRows {
  Handle x, map, count_of, y;
  double expected_rows = 0;
};
void gather_rows(Program& g, Stream stream, const GatherRows& args);

/// y[i] = add[i] + sum over k of x[map[m, k]], m = map_row[i] (absent: i), entries of -1 left out, for i <
/// count. x [*, W], add (optional) and y [N, W], f32 or bf16; map i32 [*, K]; map_row i32 [N] optional. FP32
/// sums in order of k, `add` first, one rounding. No entries and no add: zero.
/// expected_rows: rows of x that are added, for the cost: W operations and a row of x each; y, add, map and map_row once, as
/// many rows as that but at most N.
struct SumRows {
  Handle x, map, map_row, count_of, add, y;
  double expected_rows = 0;
};
void sum_rows(Program& g, Stream stream, const SumRows& args);

}  // namespace moesaic::ops
