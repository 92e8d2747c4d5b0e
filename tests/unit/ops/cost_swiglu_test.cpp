// Costs of SwiGLU, all of whose rows are expected.
#include "ops/swiglu/swiglu.h"
#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;

Counted sigmoid(Counted x) {
  return 1 / (1 + exp(-x));
}

TEST(Cost, OfSwiglu) {
  constexpr int64_t R = 2;
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool weighted : {false, true})
      for (const bool with_y : {false, true})
        expect_cost({8, 24}, [&](int64_t width) {
          CostCheck f(type), b(type);
          ops::SwigluForward args{
              .h = f.random({R, 2 * width}), .y = f.blank({R, width}), .expected_rows = R};
          ops::SwigluBackward back{.dy = b.random({R, width}),
                                   .h = b.random({R, 2 * width}),
                                   .dh = b.blank({R, 2 * width}),
                                   .expected_rows = R};
          if (weighted) {
            args.weights = f.random_f32({R}), args.slots = f.count_up({R}, R);
            args.offsets = f.ints("rows", {1}, {R});
            back.weights = b.random_f32({R}), back.slots = b.count_up({R}, R);
            back.d_weights = b.blank_f32({R});
          }
          if (with_y) back.y = b.blank({R, width});
          ops::swiglu_forward(f.program(), kStream, args);
          ops::swiglu_backward(b.program(), kStream, back);
          const auto F = static_cast<size_t>(width);
          EXPECT_EQ(f.left_out([&] {
            Numbers y;
            for (int64_t r = 0; r < R; ++r) {
              const Numbers h = f.row(args.h, r);
              for (size_t i = 0; i < F; ++i) {
                y.push_back(h[i] / (1 + exp(-h[i])) * h[F + i]);
                if (weighted) y.back() *= f.numbers(args.weights)[size_t(r)];
              }
            }
            return Outputs{{args.y, y}};
          }),
                    0);
          return b.left_out([&] {
            Numbers dh, y, d_weights;
            for (int64_t r = 0; r < R; ++r) {
              const Numbers dy = b.row(back.dy, r), h = b.row(back.h, r);
              Numbers db;
              Counted d_weight;
              for (size_t i = 0; i < F; ++i) {
                const Counted s = sigmoid(h[i]), silu = h[i] * s;
                Counted d = dy[i];
                if (weighted) d *= b.numbers(back.weights)[size_t(r)];
                dh.push_back(d * h[F + i] * (s + silu * (1 - s)));
                db.push_back(d * silu);
                if (!weighted && !with_y) continue;
                Counted unweighted = silu * h[F + i];
                if (weighted) d_weight += dy[i] * unweighted;
                if (with_y)
                  y.push_back(weighted ? unweighted * b.numbers(back.weights)[size_t(r)] : unweighted);
              }
              dh.insert(dh.end(), db.begin(), db.end());
              d_weights.push_back(d_weight);
            }
            Outputs outputs{{back.dh, dh}};
            if (with_y) outputs.push_back({back.y, y});
            if (weighted) outputs.push_back({back.d_weights, d_weights});
            return outputs;
          });
        });
}

}  // namespace
}  // namespace moesaic::test
