// Everything that can be wrong with a checkpoint on disk: refused with the name of the file, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/file.h"
#include "checkpoint/digest.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/sharded_model.h"

namespace moesaic {
namespace {

using testing::HasSubstr;

/// Rewrites a manifest through `edit`, with a digest that fits.
template <class F>
void edit_manifest(const std::string& path, F&& edit) {
  const std::string text = slurp(path + "/manifest.json");
  std::string rest = text.substr(text.find('\n') + 1);
  edit(rest);
  spit(path + "/manifest.json",
       "{\"xxh3_128\": \"" + digest_of(std::as_bytes(std::span(rest))) + "\",\n" + rest);
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " in " << text;
  text.replace(at, from.size(), to);
}

TEST(Checkpoint, EveryFlippedByteIsRefused) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, shards_of(Model(), 2));
  size_t total = 0;
  for (const std::string& name : list_folder(path)) {
    const std::string good = slurp(path + "/" + name);
    total += good.size();
    for (size_t at = 0; at < good.size(); ++at) {
      for (const char mask : {'\x01', '\x20'}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ mask);
        spit(path + "/" + name, bad);
        EXPECT_THAT(io_error_of([&] { CheckpointReader reader(path); }), HasSubstr(name))
            << name << " byte " << at;
      }
    }
    spit(path + "/" + name, good);
  }
  EXPECT_GT(total, 1500u);
  CheckpointReader reader(path);
}

TEST(Checkpoint, EveryCutLengthIsRefused) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, shards_of(Model(), 2));
  for (const std::string& name : list_folder(path)) {
    const std::string good = slurp(path + "/" + name);
    for (size_t size = 0; size < good.size(); ++size) {
      spit(path + "/" + name, good.substr(0, size));
      EXPECT_THROW(CheckpointReader(path, Verify::sizes), IoError) << name << " cut to " << size;
    }
    spit(path + "/" + name, good + "x");
    EXPECT_THROW(CheckpointReader(path, Verify::sizes), IoError) << name << " with a byte more";
    spit(path + "/" + name, good);
  }
  for (const std::string& name : list_folder(path)) {
    const std::string good = slurp(path + "/" + name);
    remove_tree(path + "/" + name);
    EXPECT_THAT(io_error_of([&] { CheckpointReader(path, Verify::sizes); }), HasSubstr(name));
    spit(path + "/" + name, good);
  }
}

TEST(Checkpoint, NamesTheDamagedTensor) {
  const TempFolder folder;
  const Model model;
  const std::string path = save(folder.path(), 1, shards_of(model, 2));
  const std::string shard = path + "/rank_00001.safetensors";
  std::string bytes = slurp(shard);
  bytes[static_cast<size_t>(SafetensorsFile(shard).get("master/t3@9").offset)] ^= 1;
  spit(shard, bytes);
  EXPECT_THAT(io_error_of([&] { CheckpointReader reader(path); }),
              HasSubstr("rank_00001.safetensors: the bytes of master/t3@9"));
  const CheckpointReader reader(path, Verify::sizes);
  EXPECT_NO_THROW(reader.verify_contents(0, 2));
  EXPECT_THROW(reader.verify_contents(1, 2), IoError);
}

TEST(Checkpoint, RefusesANewerFormatAndOddManifests) {
  const TempFolder folder;
  const Model model;
  const auto error_after = [&](const std::string& from, const std::string& to) {
    const std::string path = save(folder.path(), 1, shards_of(model, 2));
    edit_manifest(path, [&](std::string& text) { replace(text, from, to); });
    return io_error_of([&] { CheckpointReader(path, Verify::sizes); });
  };
  ASSERT_EQ(error_after("\"step\":1", "\"step\":1"), "no IoError");
  EXPECT_THAT(error_after("\"version\":1", "\"version\":2"), HasSubstr("format version 2"));
  EXPECT_THAT(error_after("moesaic-checkpoint", "something"), HasSubstr("not the manifest"));
  EXPECT_THAT(error_after("rank_00000.safetensors", "../rank.safetensors"),
              HasSubstr("not the name of a file"));
  EXPECT_THAT(error_after("rank_00000.safetensors", "x/../../rank.safetensors"),
              HasSubstr("not the name of a file"));
  EXPECT_THAT(error_after("rank_00000.safetensors", "rank_00001.safetensors"), HasSubstr("listed twice"));
  EXPECT_THAT(error_after("\"file\":1", "\"file\":2"), HasSubstr("lies in file 2 of 2"));
  EXPECT_THAT(error_after("\"offset\":", "\"offset\":9223372036854775"), HasSubstr("bytes at"));
  EXPECT_THAT(error_after("\"count\":10", "\"count\":9"), HasSubstr("elements 9 to 9 are missing"));
  EXPECT_THAT(error_after("\"count\":10", "\"count\":9223372036854775807"), HasSubstr("not inside"));
  EXPECT_THAT(error_after("\"state\":{\"step\":1}", "\"state\":[]"),
              HasSubstr("\"state\" must be an object"));
  EXPECT_THAT(error_after("\"step\":1,", "\"step\":-1,"), HasSubstr("whole number"));
}

TEST(Checkpoint, NeverCrashesOnAManifestDamagedWithAFittingDigest) {
  const TempFolder folder;
  const Model model;
  const std::string path = save(folder.path(), 1, shards_of(model, 2));
  const std::string good = slurp(path + "/manifest.json");
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    spit(path + "/manifest.json", good);
    edit_manifest(path, [&](std::string& text) {
      for (int i = 0; i <= round % 3; ++i) {
        const size_t at = random() % text.size();
        text[at] = random() % 2 ? static_cast<char>('0' + random() % 10) : static_cast<char>(random());
      }
    });
    try {
      const CheckpointReader reader(path);
      for (size_t t = 0; t < model.shapes.size(); ++t) {
        load_one(reader, model.piece(t, 0, static_cast<int64_t>(model.values[t].size())));
      }
    } catch (const IoError&) {
    }
  }
}

}  // namespace
}  // namespace moesaic
