// Everything that can be wrong with a checkpoint on disk: refused with the name of the file, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
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

/// The tensor of a shard whose bytes hold byte `at`; empty for its header and for other files.
std::string entry_at(const std::string& path, const std::string& name, size_t at) {
  if (!name.ends_with(".safetensors")) return "";
  const SafetensorsFile file(path + "/" + name);
  for (const StoredTensor& tensor : file.tensors())
    if (tensor.offset <= static_cast<int64_t>(at) && static_cast<int64_t>(at) < tensor.offset + tensor.bytes)
      return tensor.name;
  return "";
}

TEST(Checkpoint, EveryFlippedByteIsRefusedWithFileAndTensorNamed) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, shards_of(Model(), 2));
  std::vector<char> masks{'\x01', '\x20'};
  if (std::getenv("MOESAIC_FULL_MATRIX") != nullptr)
    masks = {'\x01', '\x02', '\x04', '\x08', '\x10', '\x20', '\x40', '\x80', '\xff'};
  size_t total = 0, in_tensors = 0;
  for (const std::string& name : list_folder(path)) {
    const std::string good = slurp(path + "/" + name);
    total += good.size();
    std::vector<std::string> entries;
    for (size_t at = 0; at < good.size(); ++at) entries.push_back(entry_at(path, name, at));
    for (size_t at = 0; at < good.size(); ++at) {
      in_tensors += !entries[at].empty();
      for (const char mask : masks) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ mask);
        spit(path + "/" + name, bad);
        EXPECT_THAT(io_error_of([&] { CheckpointReader reader(path); }),
                    AllOf(HasSubstr(path + "/" + name), HasSubstr(entries[at])))
            << name << " byte " << at;
      }
    }
    spit(path + "/" + name, good);
  }
  EXPECT_GT(total, 1500u);
  EXPECT_EQ(in_tensors, 4 * (20 + 7 + 1 + 18u)) << "every byte of every tensor was met";
  CheckpointReader reader(path);
}

TEST(Checkpoint, EveryCutLengthIsRefusedWithFileAndTensorNamed) {
  const TempFolder folder;
  const std::string path = save(folder.path(), 1, shards_of(Model(), 2));
  for (const std::string& name : list_folder(path)) {
    const std::string good = slurp(path + "/" + name);
    std::vector<std::string> entries;
    for (size_t at = 0; at < good.size(); ++at) entries.push_back(entry_at(path, name, at));
    for (size_t size = 0; size < good.size(); ++size) {
      spit(path + "/" + name, good.substr(0, size));
      const std::string said = io_error_of([&] { CheckpointReader(path, Verify::sizes); });
      EXPECT_THAT(said, AllOf(HasSubstr(path + "/" + name), HasSubstr(entries[size])))
          << name << " cut to " << size;
      EXPECT_EQ(said.find(", from master/t") != std::string::npos, name != "manifest.json") << size;
    }
    spit(path + "/" + name, good + "x");
    EXPECT_THAT(io_error_of([&] { CheckpointReader(path, Verify::sizes); }), HasSubstr(path + "/" + name));
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
