#include "ops/norm/norm.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

TEST(SumOfSquaresParity, EveryLength) {
  // FP32 sums of at most 16 squares here, of 128 there; FP64 above.
  for (const int64_t count : {1, 3, 4, 31, 1023, 4096, 4097, 100001, 6000003})
    expect_parity({.f32 = 1e-6}, [&](OpRunner& r) -> Outputs {
      const Handle x = r.tensor("x", {count}, fresh_randn(count, 1)), out = r.tensor("out", {1});
      ops::sum_of_squares(r.program(), Stream::compute, x, out);
      return {out};
    });
}

TEST(SumOfSquaresParity, UnalignedViews) {
  // A shard of a bucket may begin anywhere.
  for (const int64_t first : {1, 2, 3, 4})
    expect_parity({.f32 = 1e-6}, [&](OpRunner& r) -> Outputs {
      const Handle all = r.tensor("all", {5000}, fresh_randn(5000, 1)), out = r.tensor("out", {1}),
                   n = r.ints("n", {1});
      ops::sum_of_squares(r.program(), Stream::compute, r.program().view(all, first, {4321}), out);
      ops::count_nonfinite(r.program(), Stream::compute, r.program().view(all, first, {4321}), n);
      return {out, n};
    });
}

TEST(SumOfSquaresParity, ALargePartDoesNotSwallowSmallOnes) {
  std::vector<float> x(1000 * 4096, 1.0f / 64);
  x[12345] = 1e4f;
  expect_parity({.f32 = 1e-7}, [&](OpRunner& r) -> Outputs {
    const Handle out = r.tensor("out", {1});
    ops::sum_of_squares(r.program(), Stream::compute, r.tensor("x", {1000 * 4096}, x), out);
    return {out};
  });
}

TEST(CountNonfiniteParity, CountsAndTheSumIsNotFiniteEither) {
  for (const int64_t count : {9, 5000, 70001}) {
    std::vector<float> x = fresh_randn(count, 1);
    x.front() = kNan;
    x[static_cast<size_t>(count / 2)] = -kInf;
    x[3] = std::numeric_limits<float>::max();
    x.back() = kInf;
    expect_parity({}, [&](OpRunner& r) -> Outputs {
      const Handle xh = r.tensor("x", {count}, x), n = r.ints("n", {1}), m = r.ints("m", {1}),
                   sum = r.tensor("sum", {1});
      ops::count_nonfinite(r.program(), Stream::compute, xh, n);
      ops::sum_of_squares(r.program(), Stream::compute, xh, sum);
      ops::count_nonfinite(r.program(), Stream::compute, sum, m);
      return {n, m};
    });
  }
}

struct Step {
  std::vector<float> parts{9, 16};
  std::vector<int32_t> overflow{0, 0, 0};
  int32_t counted = 7;
  float clip = 1;
  bool drop_overflow = false;
};

void expect_verdict(const Step& step, bool with_norm = true) {
  expect_parity({.f32 = 1e-6}, [&](OpRunner& r) -> Outputs {
    ops::Verdict args{.clip = step.clip, .drop_overflow = step.drop_overflow};
    args.parts = r.tensor("parts", {static_cast<int64_t>(step.parts.size())}, step.parts);
    args.overflow = r.ints("overflow", {static_cast<int64_t>(step.overflow.size())}, step.overflow);
    args.counted = r.ints("counted", {1}, {step.counted});
    args.grad_norm = r.tensor("grad_norm", {1});
    args.clip_scale = r.tensor("clip_scale", {1});
    args.ok = r.ints("ok", {1});
    ops::verdict(r.program(), Stream::compute, args);
    Outputs outputs{args.clip_scale, args.ok};
    if (with_norm) outputs.push_back(args.grad_norm);
    return outputs;
  });
}

TEST(VerdictParity, EveryReason) {
  for (const float clip : {0.0f, 0.5f, 1.0f, 6.0f}) expect_verdict({.clip = clip});
  std::vector<float> many = fresh_randn(1000, 1);
  for (float& x : many) x *= x;
  expect_verdict({.parts = many});
  expect_verdict({.parts = {0}});
  expect_verdict({.parts = {3e38f, 3e38f}});
  for (const bool drop : {true, false})
    for (const size_t at : {0, 31, 32, 99}) {
      std::vector<int32_t> overflow(100, 0);
      overflow[at] = 900;
      expect_verdict({.overflow = overflow, .drop_overflow = drop});
    }
  for (const int32_t counted : {0, 1}) expect_verdict({.counted = counted});
  expect_verdict({.parts = {1, kNan}}, false);
  expect_verdict({.parts = {kInf, 1}}, false);
}

}  // namespace
}  // namespace moesaic::test
