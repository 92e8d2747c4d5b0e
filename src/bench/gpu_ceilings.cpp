#include "bench/gpu_ceilings.h"

#include <algorithm>

#include "bench/alone.h"
#include "mesh/mesh.h"
#include "ops/attention/attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"

namespace moesaic {
namespace {

constexpr int64_t kCopyBytes = int64_t{1} << 30;  // read and written; far more than the L2 cache holds

double copy_rate(Rank& rank) {
  Alone alone(rank, "bench copy");
  const Handle from = alone.tensor(DType::bf16, {kCopyBytes / 4}),
               to = alone.tensor(DType::bf16, {kCopyBytes / 4});
  ops::copy(alone.program(), Stream::compute, from, to);
  return static_cast<double>(kCopyBytes) / alone.seconds();
}

/// One dense product of the shape, BF16 to BF16, or (adds) a weight gradient that adds to FP32.
double product_rate(Rank& rank, const Cost& c) {
  Alone alone(rank, "bench product");
  const Handle a = c.adds ? alone.tensor(DType::bf16, {c.k, c.m}) : alone.tensor(DType::bf16, {c.m, c.k}),
               b = c.adds ? alone.tensor(DType::bf16, {c.k, c.n}) : alone.tensor(DType::bf16, {c.n, c.k}),
               y = alone.tensor(c.adds ? DType::f32 : DType::bf16, {c.m, c.n});
  ops::matmul(alone.program(), Stream::compute,
              {.a = a, .b = b, .c = y, .trans_a = c.adds, .trans_b = !c.adds, .accumulate = c.adds});
  return 2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k) /
         alone.seconds();
}

double attention_rate(Rank& rank, const Config& config, const Cost& c) {
  const int64_t S = c.m, H = c.n, A = c.k,
                G = std::max<int64_t>(1, H * config.model.num_kv_heads / config.model.num_heads);
  Alone alone(rank, "bench attention");
  const Handle qkv = alone.tensor(DType::bf16, {1, S, (H + 2 * G) * A}),
               o = alone.tensor(DType::bf16, {1, S, H * A}), lse = alone.tensor(DType::f32, {1, H, S});
  if (c.adds) {
    const Handle d_o = alone.tensor(DType::bf16, {1, S, H * A}),
                 d_qkv = alone.tensor(DType::bf16, {1, S, (H + 2 * G) * A});
    ops::attention_backward(alone.program(), Stream::compute,
                            {.d_o = d_o,
                             .qkv = qkv,
                             .o = o,
                             .lse = lse,
                             .d_qkv = d_qkv,
                             .num_heads = H,
                             .num_kv_heads = G,
                             .head_dim = A,
                             .tuning = {.deterministic = config.train.deterministic}});
  } else {
    ops::attention_forward(
        alone.program(), Stream::compute,
        {.qkv = qkv, .o = o, .lse = lse, .num_heads = H, .num_kv_heads = G, .head_dim = A});
  }
  const double operations =
      (c.adds ? 5.0 : 2.0) * static_cast<double>(S) * static_cast<double>(S) * static_cast<double>(H * A);
  return operations / alone.seconds();
}

}  // namespace

Ceilings measure_gpu_ceilings(const Config& config, const std::vector<Cost>& costs) {
  Ceilings ceilings;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    Ceilings mine;
    mine.copy = {{kCopyBytes, copy_rate(rank)}};
    mine.matmul_operations_per_s =
        product_rate(rank, {.work = Work::matmul, .m = 8192, .n = 8192, .k = 8192});
    for (const Cost& c : costs) {
      if (!c.is_product() || mine.find(c)) continue;
      mine.products.push_back(
          {c.work, c.m, c.n, c.k, c.adds,
           c.work == Work::attention ? attention_rate(rank, config, c) : product_rate(rank, c)});
    }
    if (rank.rank == 0) ceilings = mine;
  });
  return ceilings;
}

}  // namespace moesaic
