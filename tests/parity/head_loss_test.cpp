#include "ops/head_loss/head_loss.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

struct Case {
  int64_t num_tokens = 50, width = 64, num_logits = 260, chunk = 50;
  DType type = DType::bf16;
  bool gradients = true, token_loss = true;
  float size = 2;              // of the logits
  uint64_t one_counts_in = 0;  // tokens; 0 = all but one in eight count
  bool biased = false, accumulate = true;
};

void expect_loss(const Case& c, const Bounds& bounds) {
  SCOPED_TRACE(fmt::format("T {} D {} V {} chunk {} {} gradients {} biased {} accumulate {}", c.num_tokens,
                           c.width, c.num_logits, c.chunk, name_of(c.type), c.gradients, c.biased,
                           c.accumulate));
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    const auto i = static_cast<uint64_t>(t);
    const bool counts = c.one_counts_in == 0 ? random_below(8, test_seed(), 1, i) != 0
                                             : random_below(c.one_counts_in, test_seed(), 1, i) == 0;
    targets.push_back(
        counts ? static_cast<int32_t>(random_below(static_cast<uint64_t>(c.num_logits), test_seed(), 2, i))
               : -1);
  }
  expect_parity(bounds, [&](OpRunner& r) -> Outputs {
    const float w_size = c.size / std::sqrt(static_cast<float>(c.width));
    ops::HeadLoss args{
        .x = r.tensor("x", {c.num_tokens, c.width}, fresh_randn(c.num_tokens * c.width, 3), c.type),
        .w = r.tensor("w", {c.num_logits, c.width}, fresh_randn(c.num_logits * c.width, 4, w_size), c.type),
        .targets = r.ints("targets", {c.num_tokens}, targets),
        .logits = r.tensor("logits", {c.chunk, c.num_logits}),
        .loss = r.tensor("loss", {1}, {10}),
        .counted = r.ints("counted", {1}, {100})};
    Outputs outputs{args.loss, args.counted};
    if (c.token_loss) outputs.push_back(args.token_loss = r.tensor("token_loss", {c.num_tokens}));
    if (c.gradients) {
      args.scale = r.tensor("scale", {1}, {0.125f});
      outputs.push_back(args.dx = r.tensor("dx", {c.num_tokens, c.width}, {}, c.type));
      const auto before = [&](int64_t count, uint64_t seed) {  // without accumulate: nothing that may be used
        return c.accumulate ? fresh_randn(count, seed, 0.01f) : std::vector<float>{};
      };
      args.accumulate = c.accumulate;
      outputs.push_back(args.dw = r.tensor("dw", {c.num_logits, c.width}, before(c.num_logits * c.width, 5)));
      if (c.biased)
        outputs.push_back(args.d_bias = r.tensor("d_bias", {c.num_logits}, before(c.num_logits, 7)));
    }
    if (c.biased) args.bias = r.tensor("bias", {c.num_logits}, fresh_randn(c.num_logits, 6), c.type);
    ops::head_loss(r.program(), Stream::compute, args);
    return outputs;
  });
}

// FP32 sums in another order. In BF16 the logits' gradient is rounded before its products, and a last bit of FP32 can turn
// that rounding over (one element in some hundred, by 2^-8), and that of dx after it.
constexpr Bounds kLoss{.f32 = 2e-6}, kGradients{.f32 = 1e-5}, kBf16Gradients{.bf16 = 2e-3, .f32 = 5e-4};

const Bounds& bounds_of(const Case& c) {
  return !c.gradients ? kLoss : c.type == DType::f32 ? kGradients : kBf16Gradients;
}

TEST(HeadLossParity, EveryShapeAndType) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool gradients : {false, true})
      for (const int64_t num_logits : {2, 259, 512, 4097, 10000})
        for (const int64_t chunk : {1, 16, 37, 64}) {
          const Case c{.num_tokens = chunk == 1 ? 3 : 37,
                       .num_logits = num_logits,
                       .chunk = chunk,
                       .type = type,
                       .gradients = gradients,
                       .token_loss = gradients == (chunk == 16)};
          expect_loss(c, bounds_of(c));
        }
}

TEST(HeadLossParity, WithABias) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool gradients : {false, true})
      for (const bool accumulate : {false, true})
        for (const int64_t num_logits : {2, 259, 512, 4097, 10000})
          for (const int64_t chunk : {16, 64}) {
            const Case c{.num_tokens = 37,
                         .num_logits = num_logits,
                         .chunk = chunk,
                         .type = type,
                         .gradients = gradients,
                         .biased = true,
                         .accumulate = accumulate};
            expect_loss(c, bounds_of(c));
          }
}

TEST(HeadLossParity, WritesGradientsWithoutAccumulate) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Case c{.chunk = 16, .type = type, .accumulate = false};
    expect_loss(c, bounds_of(c));
  }
}

TEST(HeadLossParity, OddWidths) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t width : {1, 7, 130}) {
      const Case c{.num_tokens = 21, .width = width, .num_logits = 131, .chunk = 10, .type = type};
      expect_loss(c, bounds_of(c));
    }
}

TEST(HeadLossParity, FewOrNoTokensCount) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const uint64_t one_in : {10, 1000000000}) {
      const Case c{.type = type, .one_counts_in = one_in};
      expect_loss(c, bounds_of(c));
    }
}

TEST(HeadLossParity, LogitsFarApart) {
  // Logits of 100 carry an error of 1e-5, and the loss with them.
  for (const DType type : {DType::f32, DType::bf16})
    expect_loss({.num_logits = 1000, .type = type, .gradients = false, .size = 100}, {.f32 = 1e-5});
}

}  // namespace
}  // namespace moesaic::test
