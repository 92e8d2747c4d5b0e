// Saving, replacing, pruning and restoring when the disk fails, the process dies, or the power goes, at every single call of
// the file system: afterwards there is the checkpoint before or the one after, whole, and the next save leaves no traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "checkpoint/folder.h"
#include "support/faulty_files.h"
#include "support/memory_files.h"
#include "unit/checkpoint/sharded_model.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder = "/disk/run/checkpoints";
constexpr int64_t kKeepLast = 2;

/// Values that tell which save they are from.
Model model_of(float mark) {
  Model model;
  for (auto& values : model.values)
    for (float& value : values) value += 1000 * mark;
  return model;
}

struct Save {
  int64_t step;
  float mark;
  int64_t num_ranks;
};

void do_save(const Save& what) {
  save(kFolder, what.step, shards_of(model_of(what.mark), what.num_ranks));
  KnownManifests known;
  prune_checkpoints(kFolder, kKeepLast, known);
}

/// Which save the newest whole checkpoint is from, all of its values compared; "none", "none that can be read", or what is
/// wrong.
std::string newest() {
  const LatestCheckpoint latest = find_latest_checkpoint(kFolder);
  if (latest.path.empty()) return latest.damaged.empty() ? "none" : "none that can be read";
  const CheckpointReader reader(latest.path);
  for (const float mark : {1, 2, 3, 4}) {
    const Model model = model_of(mark);
    bool same = true;
    for (size_t t = 0; t < model.shapes.size(); ++t)
      same &= load_one(reader, model.piece(t, 0, static_cast<int64_t>(model.values[t].size()))) ==
              model.values[t];
    if (same) return fmt::format("step {} of save {}", latest.step, mark);
  }
  return latest.path + " is a mixture";
}

/// Everything below a folder, one name after another.
std::string tree(FileSystem& files, const std::string& path) {
  std::vector<std::string> names;
  if (files.list(path, names) != 0) return "";
  std::string all;
  for (const std::string& name : names) {
    all += name + " ";
    const std::string below = tree(files, fmt::format("{}/{}", path, name));
    if (!below.empty()) all += fmt::format("({}) ", below);
  }
  return all;
}

/// A disk with some saves, the save under test, and what must be there in the end.
struct Story {
  const char* name;
  std::vector<Save> before;
  Save during;
  std::string old_state, new_state;
};

const Story kStories[] = {
    {"first_of_all", {}, {1, 1, 2}, "none", "step 1 of save 1"},
    {"another_that_prunes", {{1, 1, 2}, {2, 2, 4}}, {3, 3, 3}, "step 2 of save 2", "step 3 of save 3"},
    {"the_same_step_again", {{1, 1, 2}, {2, 2, 2}}, {2, 3, 4}, "step 2 of save 2", "step 2 of save 3"},
};

class Faults : public testing::TestWithParam<Story> {
 protected:
  /// Runs the story with one fault, and then `afterwards` with all well again. Returns whether the fault struck.
  template <class F>
  bool tell(const Fault& fault, size_t max_write, const F& afterwards) {
    MemoryFiles memory;
    FaultyFiles files(memory);
    const ReplacedFileSystem in_force(files);
    for (const Save& one : GetParam().before) do_save(one);
    memory.max_write = max_write;
    files.arm(fault);
    std::string failure;
    try {
      do_save(GetParam().during);
    } catch (const IoError& error) {
      failure = error.what();
      EXPECT_THAT(failure, HasSubstr(" /")) << "every failure names a path";
    }
    const bool struck = files.struck();
    files.arm({});
    afterwards(memory, failure);
    return struck;
  }
  /// What must hold now: one of both states, and a next save that works and leaves nothing behind.
  void check(MemoryFiles& memory, bool succeeded, const std::string& where) {
    const Story& story = GetParam();
    const std::string found = newest();
    if (succeeded)
      EXPECT_EQ(found, story.new_state) << where << ": it was reported as saved";
    else
      EXPECT_TRUE(found == story.old_state || found == story.new_state) << where << ": " << found;
    do_save({9, 4, 2});
    EXPECT_EQ(newest(), "step 9 of save 4") << where;
    const std::string all = tree(memory, "/");
    EXPECT_EQ(all.find(".tmp"), std::string::npos) << where << ": " << all;
    EXPECT_EQ(all.find(".old"), std::string::npos) << where << ": " << all;
    EXPECT_LE(list_folder(kFolder).size(), static_cast<size_t>(kKeepLast)) << where << ": " << all;
  }
  int64_t num_calls(size_t max_write = 200) {
    MemoryFiles memory;
    FaultyFiles files(memory);
    const ReplacedFileSystem in_force(files);
    for (const Save& one : GetParam().before) do_save(one);
    memory.max_write = max_write;
    files.arm({});
    do_save(GetParam().during);
    return files.calls();
  }
};

TEST_P(Faults, DeathAtEveryCall) {
  const int64_t calls = num_calls();
  EXPECT_GT(calls, 40);
  for (int64_t k = 0; k < calls; ++k) {
    EXPECT_TRUE(tell({Fault::death, k}, 200, [&](MemoryFiles& memory, const std::string& failure) {
      check(memory, failure.empty(), fmt::format("death at call {} of {}", k, calls));
    }));
  }
}

TEST_P(Faults, PowerLossAtEveryCallWithAnyPartOfWhatWasNotSynced) {
  const int64_t calls = num_calls();
  const uint64_t num_seeds = std::getenv("MOESAIC_FULL_MATRIX") != nullptr ? 40 : 5;
  for (int64_t k = 0; k <= calls; ++k) {
    for (uint64_t seed = 0; seed < num_seeds; ++seed) {
      tell({Fault::death, k}, 200, [&](MemoryFiles& memory, const std::string& failure) {
        memory.lose_power(seed);
        check(memory, failure.empty(), fmt::format("power loss at call {} of {}, seed {}", k, calls, seed));
      });
    }
  }
}

TEST_P(Faults, AnErrorOfTheDiskAtEveryCall) {
  const int64_t calls = num_calls();
  for (int64_t k = 0; k < calls; ++k) {
    tell({Fault::io_error, k}, 200, [&](MemoryFiles& memory, const std::string& failure) {
      check(memory, failure.empty(), fmt::format("EIO at call {} of {}: {}", k, calls, failure));
    });
  }
}

TEST_P(Faults, AShortWriteAtEveryCallChangesNothing) {
  const int64_t calls = num_calls();
  for (int64_t k = 0; k < calls; ++k) {
    tell({Fault::short_write, k}, 200, [&](MemoryFiles& memory, const std::string& failure) {
      EXPECT_EQ(failure, "");
      check(memory, true, fmt::format("short write at call {}", k));
    });
  }
  tell({}, 1, [&](MemoryFiles& memory, const std::string& failure) {
    EXPECT_EQ(failure, "");
    check(memory, true, "one byte at a time");
  });
}

TEST_P(Faults, AFullDiskFromEveryCallOnIsSaidAndLeavesTheOldOne) {
  const int64_t calls = num_calls();
  int64_t refused = 0;
  for (int64_t k = 0; k < calls; ++k) {
    tell({Fault::full, k}, 200, [&](MemoryFiles& memory, const std::string& failure) {
      if (!failure.empty()) {
        ++refused;
        EXPECT_THAT(failure, HasSubstr("free some space there"));
      }
      check(memory, failure.empty(), fmt::format("full from call {} on", k));
    });
  }
  EXPECT_GT(refused, calls / 2);
}

INSTANTIATE_TEST_SUITE_P(Stories, Faults, testing::ValuesIn(kStories),
                         [](const auto& story) { return story.param.name; });

TEST(RestoreFaults, AnErrorAtEveryCallNamesTheFileAndChangesNothing) {
  MemoryFiles memory;
  FaultyFiles files(memory);
  const ReplacedFileSystem in_force(files);
  do_save({1, 1, 2});
  do_save({2, 2, 4});
  const std::string before = tree(memory, "/");
  files.arm({});
  ASSERT_EQ(newest(), "step 2 of save 2");
  const int64_t calls = files.calls();
  int64_t refused = 0;
  for (const Fault::Kind kind : {Fault::io_error, Fault::death}) {
    for (int64_t k = 0; k < calls; ++k) {
      files.arm({kind, k});
      const std::string said = io_error_of([&] {
        // One of the two, or a refusal: never other values, and never "there is none".
        const std::string found = newest();
        EXPECT_THAT(found, testing::AnyOf("step 2 of save 2", "step 1 of save 1", "none that can be read"));
        EXPECT_TRUE(kind == Fault::death || found != "none that can be read")
            << "one error spoils one of two";
      });
      if (said != "no IoError") {
        EXPECT_THAT(said, HasSubstr(kFolder)) << k;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, calls);
  files.arm({});
  EXPECT_EQ(newest(), "step 2 of save 2");
  EXPECT_EQ(tree(memory, "/"), before);
}

TEST(RestoreFaults, AFileShortenedWhileItIsReadIsAnError) {
  MemoryFiles memory;
  const ReplacedFileSystem in_force(memory);
  do_save({1, 1, 1});
  const std::string shard = kFolder + "/step_00000001/rank_00000.safetensors";
  const CheckpointReader reader(kFolder + "/step_00000001");
  const InputFile open(shard);
  const int file = memory.open(shard, O_WRONLY, 0);
  memory.truncate(file, 100);
  memory.close(file);
  std::vector<std::byte> bytes(static_cast<size_t>(open.size()));
  EXPECT_THAT(io_error_of([&] { open.read(0, bytes, "the shard"); }), HasSubstr("cut while in use"));
  EXPECT_THAT(io_error_of([&] { reader.verify_contents(); }), HasSubstr(shard));
}

TEST(MemoryFiles, ForgetsWhatWasNotSyncedAndNothingElse) {
  MemoryFiles memory;
  const ReplacedFileSystem in_force(memory);
  make_folders("/disk/a");
  AtomicFile kept("/disk/a/kept");
  kept.write("old");
  kept.commit();
  memory.lose_power(0);
  EXPECT_EQ(read_file("/disk/a/kept", 100), "old") << "commit() is durable, and so is its folder";
  memory.close(memory.open("/disk/a/entry", O_CREAT | O_WRONLY, 0666));
  ASSERT_EQ(memory.rename("/disk/a/kept", "/disk/a/renamed"), 0);
  EXPECT_THAT(list_folder("/disk/a"), ElementsAre("entry", "renamed"));
  memory.lose_power(0);
  EXPECT_THAT(list_folder("/disk/a"), ElementsAre("kept"));
}

}  // namespace
}  // namespace moesaic
