// Case 1, an expert gets zero tokens (pytorch 152668, torchtitan PR 1166): grouped matmul hung in the backward pass for an
// empty group. Right: the step ends, and the weight gradient of that expert is exactly zero, not stale memory.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

/// Every parameter's; the padding of a bucket is never written.
void fill_gradients_with_nan(Session& session) {
  for (const ParameterRow& row : session.stage().table().rows()) {
    const std::vector<float> nan(static_cast<size_t>(row.shape.numel()), NAN);
    session.stage().device().store(session.stage().grads(row.bucket) + row.offset, nan.data(),
                                   4 * row.shape.numel());
  }
}

TEST(Case01, AnExpertWithoutTokensHasAZeroGradient) {
  for (const std::vector<int64_t>& used : std::vector<std::vector<int64_t>>{
           {0, 1, 2, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6}, {2, 5}}) {
    Config c = setup_z();
    steer_by_bias(c);
    Around around = only_experts(used);
    const auto steer = around.prepare;
    around.prepare = [steer](Session& session) {
      steer(session);
      fill_gradients_with_nan(session);
    };
    const Outcome one = run_layout(c, 2, around);
    for (int64_t layer = 0; layer < c.model.num_layers; ++layer)
      for (int64_t e = 0; e < c.model.num_experts; ++e) {
        const bool has_tokens = std::find(used.begin(), used.end(), e) != used.end();
        for (const char* w : {"w1", "w2", "w3"}) {
          const auto& gradient = one.gradients.at(fmt::format("layers.{}.experts.{}.{}", layer, e, w));
          EXPECT_EQ(norm_of(gradient) > 0, has_tokens) << layer << " " << e << " " << w;
        }
      }
    for (const Dispatch dispatch : {Dispatch::a2a, Dispatch::ag_rs}) {
      Config d = on_ranks(c, 4, dispatch);
      d.run.replay = ReplayMode::chaos;  // also fills temps with NaN
      const Outcome many = run_layout(d, 2, around);
      expect_same_training(many, one);
      const auto& gradient = many.gradients.at(
          fmt::format("layers.0.experts.{}.w1", used.size() == 2 ? 3
                                                                 : (used[0] == 1       ? 0
                                                                    : used.back() == 6 ? 7
                                                                                       : 3)));
      EXPECT_EQ(norm_of(gradient), 0);
    }
  }
}

}  // namespace
}  // namespace moesaic::test
