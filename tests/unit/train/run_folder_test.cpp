// What a run leaves in its folder, and which folders and data it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/counts.h"
#include "config/parse.h"
#include "config/print.h"
#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;
using testing::HasSubstr;

TEST(RunFolder, HoldsTheResolvedConfiguration) {
  const TrainRun run;
  Config c = run.config("a");
  c.train.steps = 1;
  c.train.trace_steps = {7, 9};
  run.train(c);
  const Config back = parse_config_file(run.folder() / "runs/a/config.toml");
  EXPECT_EQ(print_config(back), print_config(c));
  EXPECT_EQ(print_config(config_of(CheckpointReader(run.checkpoint("a", 1)))), print_config(c));
}

TEST(RunFolder, HasTheTraceOfAChosenStepFromAllRanksAndStreams) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.n = c.layout.dp = 2;
  c.train.trace_steps = {2};
  run.train(c);
  EXPECT_EQ(list_folder(run.folder() / "runs/a/traces"), std::vector<std::string>{"step_2.json"});
  const auto trace = nlohmann::json::parse(slurp(run.folder() / "runs/a/traces/step_2.json"));
  const auto& events = trace.is_array() ? trace : trace.at("traceEvents");
  std::map<int64_t, std::string> streams;  // by tid
  for (const auto& e : events)
    if (e["ph"] == "M" && e["name"] == "thread_name") streams[e["tid"]] = e["args"]["name"];
  std::map<int64_t, std::map<std::string, int64_t>> ops;  // by rank and stream
  for (const auto& e : events) {
    if (e["ph"] != "X") continue;
    EXPECT_GE(e["dur"], 0);
    ++ops[e["pid"]][streams.at(e["tid"])];
  }
  ASSERT_EQ(ops.size(), 4u);
  for (const auto& [rank, by_stream] : ops) {
    EXPECT_EQ(by_stream, ops[0]) << "every rank does the same ops; rank " << rank;
    for (const char* stream : {"compute", "comm", "copy", "reduce"})
      EXPECT_GT(by_stream.at(stream), 0) << stream;
  }
}

TEST(RunFolder, SaysWhatTheRunIsInNumbersWithEveryRanksMemory) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.n = c.layout.dp = 2;
  c.train.steps = 1;
  run.train(c);
  const RunInfo info = read_run_info(run.folder() / "runs/a/run.json");
  const ModelCounts counts = count_model(c.model);
  EXPECT_EQ(info.model, c.model.name);
  EXPECT_EQ(info.parameters, counts.total);
  EXPECT_EQ(info.active_parameters, counts.active);
  EXPECT_EQ(info.tokens_per_step, c.train.global_batch * c.train.seq_len);
  EXPECT_EQ(info.ranks, 4);
  EXPECT_EQ(info.e, 2);
  EXPECT_NE(info.dispatch, "auto");
  EXPECT_FALSE(info.peak_flops) << "none is known for a CPU";
  ASSERT_EQ(info.memory.size(), 4u);
  std::map<std::string, int64_t> rank_0;
  for (const auto& [purpose, bytes] : info.memory[0]) rank_0[purpose] = bytes;
  EXPECT_EQ(rank_0, (run.metrics("a").back()["memory_bytes"].get<std::map<std::string, int64_t>>()));
  for (const auto& rank : info.memory) EXPECT_GT(rank.front().second, 0);
}

TEST(RunFolder, ShowsItsMemoryAgainWhenRowsGrow) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.n = 2;
  c.layout.rows_factor = 1;
  run.train(c);
  ASSERT_FALSE(run.events("a", "repeat").empty()) << "this run should pass its bound on rows";
  const RunInfo info = read_run_info(run.folder() / "runs/a/run.json");
  std::map<std::string, int64_t> rank_0;
  for (const auto& [purpose, bytes] : info.memory.at(0)) rank_0[purpose] = bytes;
  EXPECT_EQ(rank_0, (run.metrics("a").back()["memory_bytes"].get<std::map<std::string, int64_t>>()));
}

TEST(RunFolder, OffersTheNewestStepToPrometheusWhereAsked) {
  const TrainRun run;
  Config c = run.config("a");
  c.run.prometheus = run.folder() / "a.prom";
  run.train(c);
  const std::string text = slurp(c.run.prometheus);
  EXPECT_THAT(text, HasSubstr("\nmoesaic_step{run=\"a\"} 5\n"));
  EXPECT_THAT(text, HasSubstr(fmt::format("\nmoesaic_loss{{run=\"a\"}} {}\n",
                                          run.metrics("a").back()["loss"].get<double>())));
  c = run.config("b");
  c.run.prometheus = run.folder() / "none/a.prom";
  EXPECT_THAT(message_of<IoError>([&] { run.train(c); }), HasSubstr("none/a.prom"));
}

TEST(RunLog, GoesOnWithoutPrometheusWhenItsFileCannotBeWritten) {
  const TrainRun run;
  Config c = run.config("a");
  make_folders(run.folder() / "shown");
  c.run.prometheus = run.folder() / "shown/a.prom";
  RunLog log(c, 0, false, run.null());
  remove_tree(run.folder() / "shown");
  for (int64_t step = 0; step < 2; ++step) {
    StepMetrics metrics;
    metrics.step = step;
    log.step(metrics, {});
  }
  EXPECT_EQ(run.metrics("a").size(), 2u);
}

TEST(RunFolder, OfAnEarlierRunIsNotWrittenOver) {
  const TrainRun run;
  Config c = run.config("a");
  c.train.save_every = 3;
  run.train(c);
  const std::string message = message_of([&] { run.train(c); });
  EXPECT_THAT(message, HasSubstr("runs/a holds an earlier run, saved at step 6"));
  EXPECT_THAT(message, HasSubstr("--resume"));
  c.run.resume = run.checkpoint("a", 3);
  EXPECT_THAT(message_of([&] { run.train(c); }), HasSubstr("step_00000006 is newer than step 3"));
  remove_tree(run.checkpoint("a", 6));
  run.train(c);
  EXPECT_TRUE(path_exists(run.checkpoint("a", 6)));
}

TEST(RunFolder, KeepsTheNewestCheckpoints) {
  const TrainRun run;
  Config c = run.config("a");
  c.train.save_every = 1;
  c.train.keep_last = 2;
  run.train(c);
  EXPECT_EQ(list_folder(run.folder() / "runs/a/checkpoints"),
            (std::vector<std::string>{"step_00000005", "step_00000006"}));
}

TEST(RunChecks, RefuseBeforeAnythingIsWritten) {
  const TrainRun run;
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config c = run.config("a");
    change(c);
    return message_of([&] { run.train(c); });
  };
  EXPECT_THAT(refusal([](Config& c) { c.layout.n = 3; }), HasSubstr("layout.e = 3 does not divide"));
  EXPECT_THAT(refusal([](Config& c) { c.run.device = DeviceKind::null; }), HasSubstr("run.device = null"));
  EXPECT_THAT(refusal([](Config& c) { c.data.train = ""; }), HasSubstr("data.train is empty"));
  EXPECT_THAT(refusal([](Config& c) { c.data.train = "nowhere/text"; }),
              HasSubstr("moesaic data prepare TEXT nowhere/text"));
  EXPECT_THAT(refusal([](Config& c) { c.data.valid = "nowhere/text"; }),
              HasSubstr("data.valid = nowhere/text"));
  EXPECT_THAT(refusal([](Config& c) { c.train.seq_len = 8000; }), HasSubstr("fewer than one sample"));
  EXPECT_THAT(refusal([](Config& c) { c.train.eval_every = 1, c.data.valid_fraction = 0; }),
              HasSubstr("nothing is held out"));
  EXPECT_THAT(refusal([](Config& c) { c.train.max_skipped = -1; }), HasSubstr("train.max_skipped"));
  EXPECT_FALSE(path_exists(run.folder() / "runs"));
}

TEST(RunChecks, ATokenOutsideTheVocabularyEndsEveryRank) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.dp = 4;
  c.model.vocab = 40;
  EXPECT_THAT(message_of([&] { run.train(c); }), HasSubstr("outside the vocabulary of V = 40"));
}

TEST(RunChecks, AnotherModelOptimizerOrTypeIsNotResumed) {
  const TrainRun run;
  run.train(run.config("a"));
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config c = run.config("b");
    c.run.resume = run.checkpoint("a", 6);
    change(c);
    return message_of<IoError>([&] { run.train(c); });
  };
  EXPECT_THAT(refusal([](Config& c) { c.model.hidden = 64; }), HasSubstr("the model is another one"));
  EXPECT_THAT(refusal([](Config& c) { c.model.num_layers = 3; }), HasSubstr("has no tensor weight/layers.2"));
  EXPECT_THAT(refusal([](Config& c) { c.optim.kind = OptimizerKind::sgd, c.optim.momentum = 0.9; }),
              HasSubstr("has no tensor momentum/"));
  EXPECT_THAT(refusal([](Config& c) { c.train.compute = ComputeType::bf16; }),
              HasSubstr("stored as f32, but bf16"));
}

}  // namespace
}  // namespace moesaic
