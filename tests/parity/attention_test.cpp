#include "ops/attention/attention.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

struct Sizes {
  int64_t B, S, H, G, A;
  int64_t row() const { return (H + 2 * G) * A; }
};

/// Documents of 60 tokens on average.
std::vector<int32_t> documents(const Sizes& z) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < z.B; ++b)
    for (int64_t i = 0, start = 0; i < z.S; ++i) {
      if (random_below(60, 7 + test_seed(), static_cast<uint64_t>(b), static_cast<uint64_t>(i)) == 0)
        start = i;
      starts.push_back(static_cast<int32_t>(start));
    }
  return starts;
}

/// o, lse and d_qkv of a forward and a backward.
Outputs record(OpRunner& r, const Sizes& z, bool packed, DType type,
               const ops::AttentionTuning& tuning = {}) {
  const Handle qkv = r.tensor("qkv", {z.B, z.S, z.row()}, fresh_randn(z.B * z.S * z.row(), 1), type);
  const Handle starts = packed ? r.ints("doc_start", {z.B, z.S}, documents(z)) : Handle{};
  const Handle o = r.tensor("o", {z.B, z.S, z.H * z.A}, {}, type), lse = r.tensor("lse", {z.B, z.H, z.S});
  const Handle d_o = r.tensor("d_o", {z.B, z.S, z.H * z.A}, fresh_randn(z.B * z.S * z.H * z.A, 2), type);
  const Handle d_qkv = r.tensor("d_qkv", {z.B, z.S, z.row()}, {}, type);
  ops::attention_forward(r.program(), Stream::compute,
                         {.qkv = qkv,
                          .doc_start = starts,
                          .o = o,
                          .lse = lse,
                          .num_heads = z.H,
                          .num_kv_heads = z.G,
                          .head_dim = z.A});
  ops::attention_backward(r.program(), Stream::compute,
                          {.d_o = d_o,
                           .qkv = qkv,
                           .o = o,
                           .lse = lse,
                           .doc_start = starts,
                           .d_qkv = d_qkv,
                           .num_heads = z.H,
                           .num_kv_heads = z.G,
                           .head_dim = z.A,
                           .tuning = tuning});
  return {o, lse, d_qkv};
}

std::string name(const Sizes& z) {
  return fmt::format("B {} S {} H {} G {} A {}", z.B, z.S, z.H, z.G, z.A);
}

/// BF16: a GPU rounds the softmax weights, the gradients of the scores, and cuDNN the parts of d_k and d_v that each query
/// head adds; each is 1e-3 of the whole, as is the rounding of the results. FP32 and lse: the order of sums.
constexpr Bounds kBounds{.bf16 = 6e-3, .f32 = 1e-5};

constexpr Sizes kShapes[] = {
    {1, 1, 4, 4, 64},    {3, 1, 4, 1, 128},    {2, 7, 4, 2, 64},    {1, 7, 6, 1, 128},  {3, 7, 8, 8, 16},
    {1, 128, 4, 4, 128}, {3, 128, 8, 2, 64},   {2, 200, 8, 2, 128}, {1, 200, 4, 1, 64}, {3, 200, 6, 3, 16},
    {1, 333, 3, 3, 64},  {1, 1024, 4, 2, 128}, {3, 1024, 4, 1, 64}};

TEST(AttentionParity, WholeSequences) {
  for (const Sizes& z : kShapes)
    for (const DType type : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(name(z));
      expect_parity(kBounds, [&](OpRunner& r) { return record(r, z, false, type); });
    }
}

TEST(AttentionParity, PackedDocuments) {
  for (const Sizes& z : kShapes)
    for (const DType type : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(name(z));
      expect_parity(kBounds, [&](OpRunner& r) { return record(r, z, true, type); });
    }
}

TEST(AttentionParity, HeadsOfUnusualWidth) {
  for (const int64_t A : {1, 7, 20, 72, 96, 192, 256, 272, 512})
    for (const bool packed : {false, true})
      for (const DType type : {DType::bf16, DType::f32}) {
        const Sizes z{2, 150, 4, 2, A};
        SCOPED_TRACE(name(z));
        expect_parity(kBounds, [&](OpRunner& r) { return record(r, z, packed, type); });
      }
}

/// All heads in one launch, some in each, one group in each, and too little even for that.
TEST(AttentionParity, BackwardInParts) {
  const Sizes z{3, 256, 8, 4, 64};
  const int64_t of_group = 2 * z.S * z.S * (z.H / z.G);
  for (const int64_t workspace : {12 * of_group, 4 * of_group, 2 * of_group, of_group / 4, of_group / 8}) {
    SCOPED_TRACE(workspace);
    expect_parity(kBounds,
                  [&](OpRunner& r) { return record(r, z, false, DType::bf16, {.workspace = workspace}); });
  }
}

TEST(AttentionParity, BackwardInAnyOrder) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  for (const Sizes& z : kShapes) {
    SCOPED_TRACE(name(z));
    OpRunner cpu(DeviceKind::cpu), gpu(DeviceKind::cuda);
    const Handle expected = record(cpu, z, false, DType::bf16).back();
    const Handle found = record(gpu, z, false, DType::bf16, {.deterministic = false}).back();
    cpu.run(), gpu.run();
    EXPECT_LT(relative_error(gpu.get(found), cpu.get(expected)), kBounds.bf16);
  }
}

}  // namespace
}  // namespace moesaic::test
