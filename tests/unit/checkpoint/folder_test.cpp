#include "checkpoint/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "support/path_files.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/sharded_model.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CheckpointFolder, NothingCountsUntilPublished) {
  const TempFolder folder;
  EXPECT_EQ(find_latest_checkpoint(folder / "none").path, "");
  const Model model;
  save(folder.path(), 5, shards_of(model, 2));
  {
    const CheckpointWriter writer(folder.path(), 6);
    write_shards(writer, shards_of(model, 2));  // and the job dies here
  }
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("step_00000005", "step_00000006.tmp"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).step, 5);
  CheckpointWriter(folder.path(), 7).begin();
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("step_00000005", "step_00000007.tmp"));
}

TEST(CheckpointFolder, FindsTheNewestWholeOneAndNamesTheDamaged) {
  const TempFolder folder;
  const Model model;
  for (const int64_t step : {5, 40, 300, 123456789}) save(folder.path(), step, shards_of(model, 2));
  make_folders(folder / "step_1");  // not a name of ours
  make_folders(folder / "step_99999999999999999999");
  EXPECT_EQ(find_latest_checkpoint(folder.path()).step, 123456789);
  remove_tree(folder / "step_123456789/manifest.json");
  spit(folder / "step_00000300/rank_00001.safetensors", "");
  const LatestCheckpoint latest = find_latest_checkpoint(folder.path());
  EXPECT_EQ(latest.step, 40);
  EXPECT_EQ(latest.path, folder / "step_00000040");
  EXPECT_THAT(latest.damaged, ElementsAre(HasSubstr("step_123456789/manifest.json"),
                                          HasSubstr("rank_00001.safetensors has 0 bytes")));
  std::filesystem::rename(folder / "step_00000005", folder / "step_00000050");
  EXPECT_EQ(find_latest_checkpoint(folder.path()).step, 40);
}

TEST(CheckpointFolder, FindsTheNewestWholeOneBelowAStep) {
  const TempFolder folder;
  const Model model;
  for (const int64_t step : {5, 40, 300}) save(folder.path(), step, shards_of(model, 2));
  spit(folder / "step_00000300/rank_00001.safetensors", "");
  const LatestCheckpoint below = find_latest_checkpoint(folder.path(), 40);
  EXPECT_EQ(below.step, 5);
  EXPECT_TRUE(below.damaged.empty()) << "newer ones are not looked at";
  EXPECT_EQ(find_latest_checkpoint(folder.path(), 41).step, 40);
  EXPECT_EQ(find_latest_checkpoint(folder.path(), 5).path, "");
}

TEST(CheckpointFolder, SavingAStepAgainReplacesIt) {
  const TempFolder folder;
  Model model;
  save(folder.path(), 5, shards_of(model, 3));
  model.values[0][0] = 77;
  const CheckpointReader reader(save(folder.path(), 5, shards_of(model, 2)));
  EXPECT_EQ(load_one(reader, model.piece(0, 0, 1))[0], 77);
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("step_00000005"));
}

TEST(CheckpointFolder, PruneKeepsTheNewestWholeOnes) {
  const TempFolder folder;
  const Model model;
  for (const int64_t step : {1, 2, 3, 4, 5}) save(folder.path(), step, shards_of(model, 2));
  spit(folder / "step_00000004/rank_00001.safetensors", "");
  spit(folder / "step_00000001/rank_00001.safetensors", "");
  spit(folder / "notes.txt", "mine");
  KnownManifests known;
  prune_checkpoints(folder.path(), 2, known);
  EXPECT_THAT(list_folder(folder.path()),
              ElementsAre("notes.txt", "step_00000003", "step_00000004", "step_00000005"));
  prune_checkpoints(folder.path(), 9, known);
  EXPECT_EQ(find_latest_checkpoint(folder.path()).step, 5);
}

TEST(CheckpointFolder, PruneReadsAManifestOnceAndLooksAtFilesAlways) {
  const TempFolder folder;
  const Model model;
  for (const int64_t step : {1, 2, 3}) save(folder.path(), step, shards_of(model, 2));
  std::vector<std::string> read;
  PathFiles watched([&](const std::string& path) {
    if (contains(path, kManifestName)) read.push_back(path);
    return 0;
  });
  const ReplacedFileSystem in_force(watched);
  KnownManifests known{{folder / "step_00000003", read_manifest(folder / "step_00000003")}};
  read.clear();
  prune_checkpoints(folder.path(), 2, known);
  EXPECT_THAT(read, ElementsAre(folder / "step_00000002/manifest.json"));
  read.clear();
  prune_checkpoints(folder.path(), 2, known);
  EXPECT_THAT(read, ElementsAre());
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("step_00000002", "step_00000003"));
  // One that has lost its manifest or a file since does not count, and is not what the others are removed for.
  spit(folder / "step_00000003/rank_00001.safetensors", "");
  prune_checkpoints(folder.path(), 1, known);
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("step_00000002", "step_00000003"));
  known = {{folder / "step_00000002", read_manifest(folder / "step_00000002")}};
  remove_tree(folder / "step_00000002/manifest.json");
  prune_checkpoints(folder.path(), 1, known);
  EXPECT_TRUE(known.empty());
}

}  // namespace
}  // namespace moesaic
