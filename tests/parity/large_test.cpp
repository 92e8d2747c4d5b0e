// Tensors of more than 2^31 elements, where a 32-bit index breaks, and with kWide columns of more than 2^32, where an unsigned
// one does: a few rows (or windows) on both sides of the borders and at the end are filled, and what becomes of them is compared
// with the CPU's op on those rows alone. The memory around them is zero, so a row that is read or written elsewhere shows.
#include <bit>
#include <map>

#include "ops/embedding/embedding.h"
#include "ops/norm/norm.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rows/rows.h"
#include "ops/swiglu/swiglu.h"
#include "support/large_runner.h"

namespace moesaic::test {
namespace {

TEST(LargeTensors, GatherRows) {
  NEEDS_GPU_MEMORY(17);
  LargeRunner r;
  const Handle x = r.tensor("x", {kRows, kWide}, DType::bf16), y = r.tensor("y", {kRows, kWide}, DType::bf16);
  for (int64_t row : sampled_rows()) r.store_row(x, row, some_row(row, kWide, 1));
  ops::gather_rows(r.program(), Stream::compute, {.x = x, .map = r.ints("map", reversed_rows()), .y = y});
  r.run();
  for (int64_t row : sampled_rows()) EXPECT_EQ(r.row(y, kRows - 1 - row), some_row(row, kWide, 1)) << row;
}

TEST(LargeTensors, SumRows) {
  NEEDS_GPU_MEMORY(17);
  LargeRunner r;
  const Handle x = r.tensor("x", {kRows, kWide}, DType::bf16), y = r.tensor("y", {kRows, kWide}, DType::bf16);
  for (int64_t row : sampled_rows()) r.store_row(x, row, some_row(row, kWide, 1));
  // Of token t: t and kRows - 1 - t; some tokens have lost one of the two, some both.
  const auto has = [](int64_t t, int64_t k) { return (t + 2 * k) % 5 != 0 && t % 11 != 7; };
  std::vector<int32_t> entries;
  for (int32_t t = 0; t < kRows; ++t) {
    entries.push_back(has(t, 0) ? t : -1);
    entries.push_back(has(t, 1) ? static_cast<int32_t>(kRows) - 1 - t : -1);
  }
  const Handle map = r.tensor("map", {kRows, 2}, DType::i32);
  r.store(map, 0, entries);
  ops::sum_rows(r.program(), Stream::compute, {.x = x, .map = map, .y = y});
  r.run();
  for (int64_t row : sampled_rows()) {
    const auto first = some_row(row, kWide, 1), second = some_row(kRows - 1 - row, kWide, 1);
    std::vector<float> sum(first.size());
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] = float(bf16((has(row, 0) ? first[i] : 0) + (has(row, 1) ? second[i] : 0)));
    EXPECT_EQ(r.row(y, row), sum) << row;
  }
}

TEST(LargeTensors, Swiglu) {
  NEEDS_GPU_MEMORY(29);
  const auto samples = sampled_rows();
  const auto num_samples = static_cast<int64_t>(samples.size());
  const auto weight = [](int64_t row) { return 0.5f + static_cast<float>(row % 7); };
  LargeRunner r;
  OpRunner cpu;
  ops::SwigluForward forward;
  ops::SwigluBackward backward;
  std::vector<float> h_rows, dy_rows, sample_weights, all_weights(static_cast<size_t>(kRows));
  const Handle h = r.tensor("h", {kRows, 2 * kWidth}, DType::bf16),
               dy = r.tensor("dy", {kRows, kWidth}, DType::bf16);
  for (int64_t row : samples) {
    const auto h_row = some_row(row, 2 * kWidth, 1), dy_row = some_row(row, kWidth, 2);
    r.store_row(h, row, h_row);
    r.store_row(dy, row, dy_row);
    h_rows.insert(h_rows.end(), h_row.begin(), h_row.end());
    dy_rows.insert(dy_rows.end(), dy_row.begin(), dy_row.end());
    sample_weights.push_back(weight(row));
    all_weights[static_cast<size_t>(kRows - 1 - row)] = weight(row);
  }
  const Handle weights = r.tensor("weights", {kRows}, DType::f32);
  r.store(weights, 0, all_weights);
  backward = {.dy = dy,
              .h = h,
              .weights = weights,
              .slots = r.ints("slots", reversed_rows()),
              .dh = r.tensor("dh", {kRows, 2 * kWidth}, DType::bf16),
              .d_weights = r.tensor("d_weights", {kRows}, DType::f32),
              .y = r.tensor("y again", {kRows, kWidth}, DType::bf16)};
  forward = {
      .h = h, .weights = weights, .slots = backward.slots, .y = r.tensor("y", {kRows, kWidth}, DType::bf16)};
  ops::swiglu_forward(r.program(), Stream::compute, forward);
  ops::swiglu_backward(r.program(), Stream::compute, backward);
  r.run();

  std::vector<int32_t> slots(samples.size());
  std::iota(slots.begin(), slots.end(), 0);
  ops::SwigluBackward small{.dy = cpu.tensor("dy", {num_samples, kWidth}, dy_rows, DType::bf16),
                            .h = cpu.tensor("h", {num_samples, 2 * kWidth}, h_rows, DType::bf16),
                            .weights = cpu.tensor("weights", {num_samples}, sample_weights),
                            .slots = cpu.ints("slots", {num_samples}, slots),
                            .dh = cpu.tensor("dh", {num_samples, 2 * kWidth}, {}, DType::bf16),
                            .d_weights = cpu.tensor("d_weights", {num_samples}),
                            .y = cpu.tensor("y", {num_samples, kWidth}, {}, DType::bf16)};
  ops::swiglu_backward(cpu.program(), Stream::compute, small);
  cpu.run();
  const auto expected_dh = cpu.get(small.dh), expected_y = cpu.get(small.y),
             expected_weights = cpu.get(small.d_weights);
  const auto rows_of = [](const std::vector<float>& all, int64_t i, int64_t width) {
    return std::vector<float>(all.begin() + i * width, all.begin() + (i + 1) * width);
  };
  const auto d_weights = r.fetch<float>(backward.d_weights, 0, kRows);
  std::vector<float> sampled_weights;
  for (int64_t i = 0; i < num_samples; ++i) {
    const int64_t row = samples[static_cast<size_t>(i)];
    EXPECT_LT(relative_error(r.row(forward.y, row), rows_of(expected_y, i, kWidth)), 2e-4) << row;
    EXPECT_LT(relative_error(r.row(backward.y, row), rows_of(expected_y, i, kWidth)), 2e-4) << row;
    EXPECT_LT(relative_error(r.row(backward.dh, row), rows_of(expected_dh, i, 2 * kWidth)), 2e-4) << row;
    sampled_weights.push_back(d_weights[static_cast<size_t>(kRows - 1 - row)]);
  }
  EXPECT_LT(relative_error(sampled_weights, expected_weights), 5e-6);
}

TEST(LargeTensors, Embedding) {
  NEEDS_GPU_MEMORY(25);
  // The last id comes at 0 and 5; the one before it is a long run: at 1 and from 100 to 299.
  std::vector<int32_t> ids = reversed_rows();
  ids[5] = static_cast<int32_t>(kRows - 1);
  std::fill(ids.begin() + 100, ids.begin() + 300, static_cast<int32_t>(kRows - 2));
  std::map<int64_t, std::vector<int64_t>> tokens_of{{kRows - 1, {0, 5}}, {kRows - 2, {1, 100, 299}}};
  for (int64_t row : sampled_rows())
    if (row > 300) tokens_of.insert({kRows - 1 - row, {row}});
  {
    LargeRunner r;
    const Handle table = r.tensor("table", {kRows, kWide}, DType::bf16),
                 x = r.tensor("x", {kRows, kWide}, DType::bf16);
    for (const auto& [id, tokens] : tokens_of) r.store_row(table, id, some_row(id, kWide, 1));
    ops::embedding_forward(r.program(), Stream::compute,
                           {.tokens = r.ints("tokens", ids), .table = table, .x = x});
    r.run();
    for (const auto& [id, tokens] : tokens_of)
      for (int64_t token : tokens) EXPECT_EQ(r.row(x, token), some_row(id, kWide, 1)) << token;
  }
  LargeRunner r;
  const Handle dx = r.tensor("dx", {kRows, kWide}, DType::bf16),
               dtable = r.tensor("dtable", {kRows, kWide}, DType::f32);
  for (const auto& [id, tokens] : tokens_of) {
    r.store(dtable, id * kWide, some_row(id, kWide, 2));
    for (int64_t token : tokens) r.store_row(dx, token, some_row(token, kWide, 3));
  }
  ops::embedding_backward(r.program(), Stream::compute,
                          {.tokens = r.ints("tokens", ids), .dx = dx, .dtable = dtable});
  r.run();
  for (const auto& [id, tokens] : tokens_of) {
    auto sum = some_row(id, kWide, 2);
    for (int64_t token : tokens) {
      const auto more = some_row(token, kWide, 3);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    }
    EXPECT_EQ(r.fetch<float>(dtable, id * kWide, kWide), sum) << id;
  }
}

TEST(LargeTensors, AdamW) {
  NEEDS_GPU_MEMORY(33);
  constexpr int64_t N = kBorder + 12347, kWindow = 64;
  const std::vector<int64_t> windows = {0, kBorder / 2 - kWindow / 2, kBorder - kWindow / 2, N - kWindow};
  const auto count = static_cast<int64_t>(windows.size()) * kWindow;
  // Weight decay in a part of each window, as [begin, end) from the window's begin.
  const std::vector<ops::ElementRange> parts = {{16, 40}, {8, 19}, {24, 41}, {34, 61}};

  LargeRunner r;
  OpRunner cpu;
  const auto shard = [&](auto&& tensor, Handle scalars, Handle clip_scale, Handle ok) {
    return ops::AdamW{.shard = {.param = tensor("param", DType::bf16),
                                .remainder = tensor("remainder", DType::u16),
                                .grad = tensor("grad", DType::f32),
                                .scalars = scalars,
                                .clip_scale = clip_scale,
                                .ok = ok},
                      .m = tensor("m", DType::f32),
                      .v = tensor("v", DType::f32),
                      .weight_decay = 0.1f};
  };
  const std::vector<float> step{3e-3f, 0.19f, 0.0975f};
  const Handle scalars = r.tensor("scalars", {3}, DType::f32), clip = r.tensor("clip_scale", {1}, DType::f32);
  r.store(scalars, 0, step);
  r.store(clip, 0, std::vector<float>{0.4f});
  auto large = shard([&](const char* name, DType type) { return r.tensor(name, {N}, type); }, scalars, clip,
                     r.ints("ok", {1}));
  auto small = shard([&](const char* name, DType type) { return cpu.raw(name, {count}, type); },
                     cpu.tensor("scalars", {3}, step), cpu.tensor("clip_scale", {1}, {0.4f}),
                     cpu.ints("ok", {1}, {1}));
  for (size_t w = 0; w < windows.size(); ++w) {
    const auto at = static_cast<int64_t>(w) * kWindow;
    large.shard.decay.push_back({windows[w] + parts[w].begin, windows[w] + parts[w].end});
    small.shard.decay.push_back({at + parts[w].begin, at + parts[w].end});
    const auto fill = [&](Handle from, Handle to, auto zero) {
      const auto* values = cpu.at<decltype(zero)>(from) + at;
      r.store(to, windows[w], std::vector<decltype(zero)>(values, values + kWindow));
    };
    for (int64_t i = 0; i < kWindow; ++i) {
      cpu.at<bf16>(small.shard.param)[at + i] = bf16(some_row(at, kWindow, 1)[static_cast<size_t>(i)]);
      cpu.at<uint16_t>(small.shard.remainder)[at + i] = static_cast<uint16_t>(977 * (at + i));
      cpu.at<float>(small.shard.grad)[at + i] = some_row(at, kWindow, 2)[static_cast<size_t>(i)];
      cpu.at<float>(small.m)[at + i] = 0.1f * some_row(at, kWindow, 3)[static_cast<size_t>(i)];
      cpu.at<float>(small.v)[at + i] = std::abs(some_row(at, kWindow, 4)[static_cast<size_t>(i)]);
    }
    fill(small.shard.param, large.shard.param, bf16());
    fill(small.shard.remainder, large.shard.remainder, uint16_t());
    fill(small.shard.grad, large.shard.grad, float());
    fill(small.m, large.m, float());
    fill(small.v, large.v, float());
  }
  const Handle squares = r.tensor("squares", {1}, DType::f32),
               nonfinite = r.tensor("nonfinite", {1}, DType::i32);
  ops::sum_of_squares(r.program(), Stream::compute, large.shard.grad, squares);
  ops::count_nonfinite(r.program(), Stream::compute, large.shard.grad, nonfinite);
  ops::adamw(r.program(), Stream::compute, large);
  r.run();

  double expected = 0;
  for (float x : cpu.get(small.shard.grad)) expected += double{x} * x;
  EXPECT_NEAR(r.fetch<float>(squares, 0, 1)[0], expected, 1e-5 * expected);
  EXPECT_EQ(r.fetch<int32_t>(nonfinite, 0, 1)[0], 0);
  ops::adamw(cpu.program(), Stream::compute, small);
  cpu.run();
  const auto masters = [](const std::vector<bf16>& param, const std::vector<uint16_t>& remainder) {
    std::vector<float> list;
    for (size_t i = 0; i < param.size(); ++i)
      list.push_back(
          std::bit_cast<float>((uint32_t{param[i].bits} << 16) +
                               static_cast<uint32_t>(int32_t{static_cast<int16_t>(remainder[i])})));
    return list;
  };
  for (size_t w = 0; w < windows.size(); ++w) {
    const auto at = static_cast<int64_t>(w) * kWindow;
    const auto part = [&](Handle h, auto zero) {
      const auto* values = cpu.at<decltype(zero)>(h) + at;
      return std::vector<decltype(zero)>(values, values + kWindow);
    };
    EXPECT_LT(
        relative_error(masters(r.fetch<bf16>(large.shard.param, windows[w], kWindow),
                               r.fetch<uint16_t>(large.shard.remainder, windows[w], kWindow)),
                       masters(part(small.shard.param, bf16()), part(small.shard.remainder, uint16_t()))),
        1e-7)
        << windows[w];
    EXPECT_LT(relative_error(r.fetch<float>(large.m, windows[w], kWindow), part(small.m, float())), 1e-6)
        << windows[w];
    EXPECT_LT(relative_error(r.fetch<float>(large.v, windows[w], kWindow), part(small.v, float())), 1e-6)
        << windows[w];
  }
}

}  // namespace
}  // namespace moesaic::test
