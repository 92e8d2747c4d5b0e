// Case 19, the gradient norm with expert parameters (Megatron-LM PR 5916, DeepSpeed 8475, AutoModel 3816, ColossalAI 2192): experts
// left out, rank norms averaged, one norm per expert group, experts not reduced. Right: the root of the sum of squares with each
// real parameter once, equal on all ranks, and so is the clipping factor.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

struct Seen {
  float norm, scale;
};

/// Sets every gradient so that its sum over the replicas is value(row, element), then reduces; what each rank finds.
std::vector<Seen> reduce(const Config& c, const std::function<float(const ParameterRow&, int64_t)>& value) {
  const int64_t world = Mesh(c.layout).world_size();
  std::vector<Seen> seen(static_cast<size_t>(world));
  run_ranks(c.run, world, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    session.reducer().begin_step();
    session.feed().send_scalars(1, 0.1, 1, 1, false);
    Stage& stage = session.stage();
    for (const ParameterRow& row : stage.table().rows()) {
      const auto replicas =
          static_cast<float>(stage.table().buckets()[static_cast<size_t>(row.bucket)].num_replicas);
      std::vector<float> part;
      for (int64_t i = 0; i < row.shape.numel(); ++i) part.push_back(value(row, i) / replicas);
      stage.device().store(stage.grads(row.bucket) + row.offset, part.data(), 4 * row.shape.numel());
    }
    session.reducer().reduce();
    session.reducer().verdict();
    Seen& mine = seen[static_cast<size_t>(rank.rank)];
    stage.device().fetch(&mine.norm, stage.step_scalars() + StepScalars::kGradNorm, 4);
    stage.device().fetch(&mine.scale, stage.step_scalars() + StepScalars::kClipScale, 4);
  });
  return seen;
}

/// e + 1 for a tensor of expert e, 3 for the others.
float known(const std::string& name) {
  const size_t at = name.find("experts.");
  return at == std::string::npos ? 3.0f : static_cast<float>(std::stoi(name.substr(at + 8)) + 1);
}

TEST(Case19, TheNormHasEachRealParameterOnce) {
  Config c = setup_z();
  c.optim.clip = 5;
  double sum = 0;
  const Outcome names = run_layout(c, 1);
  for (const auto& [name, values] : names.gradients)
    sum += static_cast<double>(values.size()) * known(name) * known(name);
  const double expected = std::sqrt(sum);
  for (const auto& [n, dp, e] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1},
                                                                                   {2, 1, 2},
                                                                                   {4, 1, 4},
                                                                                   {2, 2, 2},
                                                                                   {2, 2, 4},
                                                                                   {2, 2, 1},
                                                                                   {1, 4, 4},
                                                                                   {4, 2, 2},
                                                                                   {4, 2, 8}}) {
    Config d = c;
    d.layout.n = n, d.layout.dp = dp, d.layout.e = e;
    d.train.micro_batch = 1;
    for (const Seen& seen : reduce(d, [](const ParameterRow&row, int64_t) { return known(row.name); })) {
      EXPECT_NEAR(seen.norm, expected, 1e-6 * expected) << n << " " << dp << " " << e;
      EXPECT_NEAR(seen.scale, 5 / expected, 1e-6);
    }
  }
}

TEST(Case19, FourGradientsOfFourExperts) {
  Config c = setup_z();
  c.layout.n = 2, c.layout.dp = 2, c.layout.e = 4;
  c.train.micro_batch = 1;
  const auto four = [](const ParameterRow& row,
                       int64_t i) {  // 2, 4, 6, 8 in experts of four ranks, zero elsewhere
    for (int e : {0, 2, 4, 6})
      if (i == 0 && row.name == fmt::format("layers.1.experts.{}.w2", e)) return static_cast<float>(e + 2);
    return 0.0f;
  };
  for (const Seen& seen : reduce(c, four)) EXPECT_NEAR(seen.norm, 10.954451, 1e-5);
}

TEST(Case19, SharedWeightsAreEqualOnAllRanksAfterAClippedStep) {
  Config c = setup_z();
  c.optim.clip = 0.1;
  c.optim.lr *= 10;  // gains are near 1: their updates must be large beside its last bit
  const Outcome one = run_layout(c, 2);
  c.layout.n = 2, c.layout.dp = 2, c.layout.e = 4;
  c.train.micro_batch = 4;
  expect_same_training(run_layout(c, 2), one);  // and so on all ranks: Outcome::unlike
}

}  // namespace
}  // namespace moesaic::test
