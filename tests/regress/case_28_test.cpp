// A checkpoint that was interrupted, cut, or damaged. AutoModel PR 3261, metaseq 53, speculators PR 739: files were written in
// place and any folder of a step was trusted, so that every later resume hung or failed.
// And of case 27: a run that was killed goes on as the same run, on the same layout and on another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>

#include "config/parse.h"
#include "config/print.h"
#include "support/path_files.h"
#include "support/process_ranks.h"
#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

/// "config file|path": trains, and is killed as it opens a file whose path contains `path`.
TEST(Case28Child, DISABLED_TrainsUntilKilled) {
  as_child([](const std::string& what) {
    const size_t bar = what.find('|');
    PathFiles files([&](const std::string& path) {
      return contains(path, what.substr(bar + 1)) ? ::kill(::getpid(), SIGKILL) : 0;
    });
    const ReplacedFileSystem in_force(files);
    const StopFlag stop{0};
    std::FILE* null = std::fopen("/dev/null", "w");
    train(parse_config_file(what.substr(0, bar)), stop, null);
    std::fclose(null);
  });
}

struct Kill {
  const char* name;
  const char* path;  // whoever opens it is killed
  int64_t rank;
};

class Killed : public testing::TestWithParam<Kill> {};

TEST_P(Killed, InMidSaveOnlyTheLastWholeOneCountsAndTheRunGoesOn) {
  const TrainRun run;
  Config c = run.config("whole");
  c.layout.n = 2;
  c.train.micro_batch = 4;
  c.train.save_every = 2;
  run.train(c);

  c.run.name = "killed";
  const TempFolder folder;
  spit(folder / "config.toml", print_config(c));
  ProcessRanks ranks(2, "Case28Child.DISABLED_TrainsUntilKilled",
                     folder / "config.toml" + std::string("|") + GetParam().path);
  ASSERT_TRUE(ranks.wait(60)) << "no rank may hang";
  EXPECT_EQ(ranks.code(GetParam().rank), 128 + SIGKILL) << ranks.output(GetParam().rank);
  EXPECT_NE(ranks.code(1 - GetParam().rank), kDone);
  EXPECT_THAT(list_folder(run.folder() / "runs/killed/checkpoints"),
              ElementsAre("step_00000002", "step_00000004.tmp"));

  // On the same layout, to the bit.
  std::filesystem::copy(run.folder() / "runs/killed", run.folder() / "runs/moved",
                        std::filesystem::copy_options::recursive);
  c.run.resume = "auto";
  run.train(c);
  EXPECT_THAT(run.events("killed", "restart"), ElementsAre(HasSubstr("from " + run.checkpoint("killed", 2))));
  EXPECT_TRUE(all_tensors(run.checkpoint("killed", 6)) == all_tensors(run.checkpoint("whole", 6)));
  EXPECT_EQ(state_of(run.checkpoint("killed", 6)), state_of(run.checkpoint("whole", 6)));
  const auto whole = run.metrics("whole"), resumed = run.metrics("killed");
  ASSERT_EQ(resumed.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(timeless(resumed[i]), timeless(whole[i]));
  EXPECT_THAT(list_folder(run.folder() / "runs/killed/checkpoints"),
              ElementsAre("step_00000002", "step_00000004", "step_00000006"));

  // On another one, within the tolerance of case 27.
  c.run.name = "moved";
  c.layout.n = 1;
  run.train(c);
  EXPECT_EQ(state_of(run.checkpoint("moved", 6)), state_of(run.checkpoint("whole", 6)));
  const auto [error, name] =
      worst(float_tensors(run.checkpoint("moved", 6)), float_tensors(run.checkpoint("whole", 6)));
  EXPECT_LT(error, 1e-3) << name;
}

INSTANTIATE_TEST_SUITE_P(Moments, Killed,
                         testing::Values(Kill{"a_shard", "step_00000004.tmp/rank_00001", 1},
                                         Kill{"the_manifest", "step_00000004.tmp/manifest.json.tmp", 0}),
                         [](const auto& one) { return one.param.name; });

struct Damage {
  const char* name;
  const char* said;  // of the damaged file
  std::function<void(const std::string& shard)> inflict;
};

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, AutoTakesTheLastWholeOneAndANamedOneIsRefusedOnAllRanks) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.dp = 2;
  c.train.save_every = 3;
  run.train(c);
  const std::string bad = run.checkpoint("a", 6), shard = bad + "/rank_00001.safetensors";
  const std::string good = slurp(run.checkpoint("a", 6) + "/rank_00000.safetensors");
  GetParam().inflict(shard);

  Config named = c;
  named.run.name = "b";
  named.run.resume = bad;
  EXPECT_THAT(message_of<IoError>([&] { run.train(named); }),
              AllOf(HasSubstr(shard), HasSubstr(GetParam().said)));
  std::atomic<int> refused{0};
  run_ranks(c.run, 2, [&](Rank& rank) {
    EXPECT_THAT(message_of<IoError>([&] { agree_on_checkpoint(rank.control, bad); }), HasSubstr(shard));
    ++refused;
  });
  EXPECT_EQ(refused, 2);

  c.run.resume = "auto";
  testing::internal::CaptureStderr();
  run.train(c);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("passing over"), HasSubstr(shard)));
  EXPECT_THAT(run.events("a", "restart"), ElementsAre(HasSubstr("from " + run.checkpoint("a", 3))));
  EXPECT_TRUE(slurp(run.checkpoint("a", 6) + "/rank_00000.safetensors") == good) << "the same run again";
  EXPECT_NO_THROW(CheckpointReader reader(bad)) << "the damaged one was replaced";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Damaged,
    testing::Values(Damage{"cut_by_one_byte", "cut short or damaged, from ",
                           [](const std::string& shard) {
                             std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
                           }},
                    Damage{"one_byte_flipped", "do not match their digest",
                           [](const std::string& shard) {
                             std::string bytes = slurp(shard);
                             bytes[bytes.size() - 5] ^= 1;
                             spit(shard, bytes);
                           }},
                    Damage{"empty", "has 0 bytes", [](const std::string& shard) { spit(shard, ""); }},
                    Damage{"removed", "No such file", [](const std::string& shard) { remove_tree(shard); }}),
    [](const auto& one) { return one.param.name; });

TEST(Case28, AFullDiskIsSaidAndTheRunGoesOnFromTheLastWholeOne) {
  const TrainRun run;
  Config c = run.config("whole");
  c.layout.dp = 2;
  c.train.save_every = 2;
  run.train(c);
  c.run.name = "full";
  PathFiles files([](const std::string& path) {
    return contains(path, "step_00000004.tmp/rank_00001.safetensors.tmp") ? ENOSPC : 0;
  });
  {
    const ReplacedFileSystem in_force(files);
    EXPECT_THAT(message_of<IoError>([&] { run.train(c); }),
                AllOf(HasSubstr("step_00000004.tmp/rank_00001"), HasSubstr("free some space there")));
  }
  EXPECT_THAT(list_folder(run.folder() / "runs/full/checkpoints"), ElementsAre("step_00000002"));
  c.run.resume = "auto";
  run.train(c);
  EXPECT_THAT(run.events("full", "restart"), ElementsAre(HasSubstr("from " + run.checkpoint("full", 2))));
  EXPECT_TRUE(all_tensors(run.checkpoint("full", 6)) == all_tensors(run.checkpoint("whole", 6)));
}

}  // namespace
}  // namespace moesaic
