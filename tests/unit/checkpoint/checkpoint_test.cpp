#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"
#include "checkpoint/digest.h"
#include "checkpoint/folder.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/sharded_model.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Digest, MatchesThePublishedValueOfNothing) {
  EXPECT_EQ(digest_of({}), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of the empty string, seed 0
}

TEST(Checkpoint, AnyCutLoadsOnAnyOther) {
  const Model model;
  for (const int64_t saved_by : {1, 3}) {
    const TempFolder folder;
    const CheckpointReader reader(
        save(folder.path(), 100, shards_of(model, saved_by), {{"seed", 7}, {"lr", 0.1}}));
    EXPECT_EQ(reader.step(), 100);
    EXPECT_EQ(reader.state(), (nlohmann::json{{"seed", 7}, {"lr", 0.1}}));
    for (const int64_t num_ranks : {1, 2, 5}) {
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        const std::vector<Piece> pieces = model.cut(rank, num_ranks);
        for (size_t t = 0; t < pieces.size(); ++t) {
          const auto begin = model.values[t].begin() + pieces[t].begin;
          EXPECT_EQ(load_one(reader, pieces[t]), std::vector<float>(begin, begin + pieces[t].count));
        }
      }
    }
  }
}

TEST(Checkpoint, ShardsMayBeWrittenByThreads) {
  const TempFolder folder;
  const Model model;
  const Shards shards = shards_of(model, 4);
  const CheckpointWriter writer(folder.path(), 1);
  writer.begin();
  std::vector<ShardInfo> infos(4);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      infos[rank] = CheckpointWriter(folder.path(), 1).write_shard(static_cast<int64_t>(rank), shards[rank]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  writer.publish(infos, nlohmann::json::object());
  const CheckpointReader reader(writer.path());
  EXPECT_EQ(load_one(reader, model.piece(0, 0, 20)), model.values[0]);
}

TEST(Checkpoint, KeepsKindsApartAndWholeTensorsInShape) {
  const TempFolder folder;
  const Model model;
  const std::vector<uint16_t> low(7, 9);
  const Shards shards{
      {model.to_save(model.piece(0, 0, 20, "exp_avg")), model.to_save(model.piece(0, 0, 20, "master"))},
      {{{"remainder", "t1", DType::u16, {7}, 0, 7}, low.data()}},
      {}};
  const std::string path = save(folder.path(), 3, shards);
  EXPECT_THAT(list_folder(path), ElementsAre("manifest.json", "rank_00000.safetensors",
                                             "rank_00001.safetensors", "rank_00002.safetensors"));
  const SafetensorsFile shard(path + "/rank_00000.safetensors");
  EXPECT_EQ(shard.get("exp_avg/t0@0").shape, (std::vector<int64_t>{4, 5}));
  const CheckpointReader reader(path);
  std::vector<uint16_t> loaded(3);
  reader.load(std::vector<PieceToLoad>{{{"remainder", "t1", DType::u16, {7}, 2, 3}, loaded.data()}});
  EXPECT_THAT(loaded, ElementsAre(9, 9, 9));
}

TEST(Checkpoint, RefusesUnknownNamesOtherShapesAndTypes) {
  const TempFolder folder;
  const Model model;
  const CheckpointReader reader(save(folder.path(), 3, shards_of(model, 2)));
  std::vector<float> memory(100);
  const auto error = [&](Piece piece, Conversion conversion = Conversion::none) {
    return io_error_of([&] { reader.load(std::vector<PieceToLoad>{{piece, memory.data()}}, conversion); });
  };
  EXPECT_THAT(error({"master", "t9", DType::f32, {4}, 0, 4}), HasSubstr("no tensor master/t9"));
  EXPECT_THAT(error({"weight", "t0", DType::f32, {4, 5}, 0, 4}), HasSubstr("no tensor weight/t0"));
  EXPECT_THAT(error({"master", "t0", DType::f32, {5, 4}, 0, 4}), HasSubstr("has shape [4, 5], but [5, 4]"));
  EXPECT_THAT(error({"master", "t0", DType::f32, {4, 5}, 18, 3}), HasSubstr("not inside a tensor of 20"));
  EXPECT_THAT(error({"master", "t0", DType::bf16, {4, 5}, 0, 4}),
              HasSubstr("stored as f32, but bf16 is wanted"));
  EXPECT_THAT(error({"master", "t0", DType::i32, {4, 5}, 0, 4}, Conversion::f32_to_bf16),
              HasSubstr("i32 is wanted"));
}

TEST(Checkpoint, ConvertsToBf16OnlyWhenAsked) {
  const TempFolder folder;
  Model model;
  model.values[0][19] = 1.0f + 0x3p-8f;
  const CheckpointReader reader(save(folder.path(), 3, shards_of(model, 3)));
  std::vector<bf16> values(12);
  reader.load(std::vector<PieceToLoad>{{{"master", "t0", DType::bf16, {4, 5}, 8, 12}, values.data()}},
              Conversion::f32_to_bf16);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(float(values[i]), float(bf16(model.values[0][i + 8])));
}

TEST(Checkpoint, TakesReplicasThatAgreeAndRefusesThoseThatDoNot) {
  const Model model;
  std::vector<float> other = model.values[0];
  const auto same = model.to_save(model.piece(0, 0, 20));
  {
    const TempFolder folder;  // equal ranges, equal values
    EXPECT_EQ(load_one(CheckpointReader(save(folder.path(), 1, {{same}, {same}})), model.piece(0, 3, 20)),
              std::vector<float>(other.begin() + 3, other.end()));
  }
  other[7] = -1;
  const PieceToSave differs{model.piece(0, 0, 20), other.data()};
  const PieceToSave overlaps{model.piece(0, 5, 20), other.data() + 5};
  const TempFolder folder;
  EXPECT_THAT(io_error_of([&] {
                save(folder.path(), 1, {{same}, {differs}});
              }),
              HasSubstr("master/t0: elements 0 to 19 are stored twice with different values"));
  const CheckpointReader reader(save(folder.path(), 1, {{same}, {overlaps}}));
  EXPECT_THAT(io_error_of([&] { load_one(reader, model.piece(0, 0, 20)); }),
              HasSubstr("master/t0: elements 5 to 19 are stored twice with different values"));
  EXPECT_EQ(load_one(reader, model.piece(0, 8, 20)), std::vector<float>(other.begin() + 8, other.end()));
}

TEST(Checkpoint, RefusesGapsAndContradictionsWhenPublishing) {
  const TempFolder folder;
  const Model model;
  const auto error = [&](const Shards& shards) {
    return io_error_of([&] { save(folder.path(), 1, shards); });
  };
  const auto part = [&](int64_t begin, int64_t end) { return model.to_save(model.piece(0, begin, end)); };
  EXPECT_THAT(error({{part(0, 8)}, {part(9, 20)}}), HasSubstr("master/t0: elements 8 to 8 are missing"));
  EXPECT_THAT(error({{part(1, 20)}}), HasSubstr("elements 0 to 0 are missing"));
  EXPECT_THAT(error({{part(0, 8)}, {part(8, 19)}}), HasSubstr("elements 19 to 19 are missing"));
  EXPECT_THAT(error({{part(0, 20)}, {{{"master", "t0", DType::f32, {20}, 0, 20}, model.values[0].data()}}}),
              HasSubstr("[4, 5] in one piece and f32 [20] in another"));
  EXPECT_THAT(error({{part(0, 20), part(0, 3)}}), HasSubstr("occurs twice"));
  EXPECT_THAT(error({{{{"Bad kind", "t0", DType::f32, {1}, 0, 1}, model.values[0].data()}}}),
              HasSubstr("kind"));
  EXPECT_THAT(error({{{{"m", "t0", DType::f32, {2}, 1, 2}, model.values[0].data()}}}),
              HasSubstr("not inside"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).path, "");
}

TEST(Checkpoint, RefusesShardsThatAreMissingWhenPublishing) {
  const TempFolder folder;
  const CheckpointWriter writer(folder.path(), 1);
  const auto infos = write_shards(writer, shards_of(Model(), 2));
  remove_tree(folder / "step_00000001.tmp/rank_00001.safetensors");
  EXPECT_THAT(io_error_of([&] { writer.publish(infos, nlohmann::json::object()); }), HasSubstr("rank_00001"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).path, "");
}

}  // namespace
}  // namespace moesaic
