#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

void write_documents(const std::string& prefix, const std::vector<std::vector<int32_t>>& documents) {
  TokenFileWriter writer(prefix, DType::i32);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

/// A file whose token i has id i.
DataConfig counting_data(const std::string& prefix, int32_t num_tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(num_tokens));
  std::iota(ids.begin(), ids.end(), 0);
  write_documents(prefix, {ids});
  DataConfig data;
  data.train = prefix;
  data.valid_fraction = 0;
  return data;
}

std::string config_error(const DataConfig& data, int64_t seq_len) {
  try {
    Loader(data, seq_len, 1000, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> values(static_cast<size_t>(end - begin));
  std::iota(values.begin(), values.end(), begin);
  return values;
}

TEST(Loader, TargetsAreTheNextTokens) {
  const TempFolder folder;
  const Loader loader(counting_data(folder / "t", 100), 7, 100, 1);
  EXPECT_EQ(loader.num_train_samples(), 14);  // (100 - 1) / 7
  const Batch batch = loader.train(range(0, 3));
  EXPECT_EQ(batch.num_sequences, 3);
  EXPECT_EQ(batch.num_counted, 21);
  ASSERT_EQ(batch.tokens.size(), 21u);
  for (size_t i = 0; i < 21; ++i) {
    EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    EXPECT_EQ(batch.positions[i], static_cast<int32_t>(i % 7));
    EXPECT_EQ(batch.tokens[i], batch.tokens[i / 7 * 7] + static_cast<int32_t>(i % 7));
    EXPECT_EQ(batch.tokens[i / 7 * 7] % 7, 0);
  }
  EXPECT_THAT(batch.doc_start, Each(0));
}

TEST(Loader, AnEpochCountsEachTargetOnceAndResumeChangesNothing) {
  const TempFolder folder;
  const DataConfig data =
      counting_data(folder / "t", 41);  // 10 samples of 4, in batches of 4: epochs end inside batches
  const auto first_tokens = [](const Batch& batch) {
    std::vector<int32_t> first;
    for (size_t i = 0; i < batch.tokens.size(); i += 4) first.push_back(batch.tokens[i]);
    return first;
  };
  std::vector<int32_t> run;
  const Loader loader(data, 4, 41, 5);
  for (int64_t step = 0; step < 10; ++step) {
    const auto part = first_tokens(loader.train(range(step * 4, step * 4 + 4)));
    run.insert(run.end(), part.begin(), part.end());
  }
  for (int64_t e = 0; e < 4; ++e) {
    std::vector<int32_t> seen(run.begin() + e * 10, run.begin() + e * 10 + 10);
    std::sort(seen.begin(), seen.end());
    EXPECT_THAT(seen, ElementsAre(0, 4, 8, 12, 16, 20, 24, 28, 32, 36)) << "epoch " << e;
  }
  for (const int64_t stop : {1, 2, 3, 5}) {  // around the ends at samples 10 and 20
    const auto rest = first_tokens(Loader(data, 4, 41, 5).train(range(stop * 4, 40)));
    EXPECT_THAT(rest, ElementsAreArray(run.begin() + stop * 4, run.end()));
  }
  EXPECT_EQ(loader.origin(9).epoch, 0);
  EXPECT_EQ(loader.origin(10).epoch, 1);
}

TEST(Loader, AnySplitOverRanksReadsTheSameSamples) {
  const TempFolder folder;
  const Loader loader(counting_data(folder / "t", 500), 4, 500, 5);
  const Batch whole = loader.train(range(16, 24));
  std::vector<int32_t> tokens;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const Batch part = loader.train(range(16 + rank * 2, 18 + rank * 2));
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  EXPECT_EQ(tokens, whole.tokens);
}

TEST(Loader, PackedDocumentsRestartPositionsAndDropCrossingTargets) {
  const TempFolder folder;
  write_documents(folder / "t", {{1, 2, 9}, {3, 9}, {}, {9}, {4, 5, 6, 7, 8, 9}, {10, 11}});
  DataConfig data;
  data.train = folder / "t";
  data.valid_fraction = 0;
  data.packed_documents = true;
  // One sample: tokens 0 to 12. The last target, token 12, is the first of the last document.
  const Loader loader(data, 12, 12, 1);
  ASSERT_EQ(loader.num_train_samples(), 1);
  const Batch batch = loader.train(range(0, 1));
  EXPECT_THAT(batch.tokens, ElementsAre(1, 2, 9, 3, 9, 9, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(batch.targets, ElementsAre(2, 9, -1, 9, -1, -1, 5, 6, 7, 8, 9, -1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(batch.doc_start, ElementsAre(0, 0, 0, 3, 3, 5, 6, 6, 6, 6, 6, 6));
  EXPECT_EQ(batch.num_counted, 8);
}

TEST(Loader, ADocumentThatBeganEarlierStartsAtTheSample) {
  const TempFolder folder;
  write_documents(folder / "t", {{1, 2, 3}, {4, 5, 6, 7, 8, 9}});
  DataConfig data;
  data.train = folder / "t";
  data.valid = folder / "t";
  data.packed_documents = true;
  const Loader loader(data, 4, 12, 1);
  const Batch batch = loader.valid(range(0, 2));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 0, 1, 2, 3));
  EXPECT_THAT(batch.doc_start, ElementsAre(0, 0, 0, 3, 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(2, 3, -1, 5, 6, 7, 8, 9));
}

TEST(Loader, HoldsOutTheTail) {
  const TempFolder folder;
  DataConfig data = counting_data(folder / "t", 100);
  data.valid_fraction = 0.25;
  const Loader loader(data, 8, 100, 1);
  EXPECT_EQ(loader.num_train_samples(), 9);  // (75 - 1) / 8
  EXPECT_EQ(loader.num_valid_samples(), 3);  // (25 - 1) / 8
  const Batch held_out = loader.valid(range(0, 3));
  for (size_t i = 0; i < held_out.tokens.size(); ++i)
    EXPECT_EQ(held_out.tokens[i], 75 + static_cast<int32_t>(i));
  const Batch trained = loader.train(range(0, 9));
  EXPECT_LT(*std::max_element(trained.targets.begin(), trained.targets.end()), 75);
}

TEST(Loader, FillsUpWithUncountedRowsAfterTheLastHeldOutSample) {
  const TempFolder folder;
  DataConfig data = counting_data(folder / "t", 9);
  data.valid = folder / "t";
  const Loader loader(data, 4, 9, 1);
  const Batch batch = loader.valid(range(1, 4));
  EXPECT_EQ(batch.num_sequences, 3);
  EXPECT_EQ(batch.num_counted, 4);
  EXPECT_THAT(batch.tokens, ElementsAre(4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(5, 6, 7, 8, -1, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
}

TEST(Loader, RefusesFilesShorterThanASample) {
  const TempFolder folder;
  DataConfig data = counting_data(folder / "t", 100);
  EXPECT_THAT(config_error(data, 100), HasSubstr("has 100 tokens, fewer than one sample of S + 1 = 101"));
  EXPECT_EQ(config_error(data, 99), "no ConfigError");
  data.valid_fraction = 0.05;
  EXPECT_THAT(config_error(data, 8), HasSubstr("data.valid_fraction = 0.05"));
  data.valid_fraction = 0.95;
  EXPECT_THAT(config_error(data, 8), HasSubstr("without its held-out tail"));
  data.valid_fraction = 1;
  EXPECT_THAT(config_error(data, 8), HasSubstr("[0, 1)"));
  write_documents(folder / "empty", {});
  data = DataConfig();
  data.train = folder / "empty";
  EXPECT_THAT(config_error(data, 8), HasSubstr("has 0 tokens"));
}

/// Two sets of 100 and 30 tokens whose ids do not overlap.
DataConfig blended(const TempFolder& folder, const std::string& weight_a, const std::string& weight_b) {
  counting_data(folder / "a", 100);
  std::vector<int32_t> ids(30);
  std::iota(ids.begin(), ids.end(), 500);
  write_documents(folder / "b", {ids});
  DataConfig data;
  data.train = weight_a + " " + (folder / "a") + ", " + weight_b + " " + (folder / "b");
  data.valid_fraction = 0;
  return data;
}

TEST(Loader, BlendsSetsByWeightAndEachWalksItsOwnEpochs) {
  const TempFolder folder;
  const Loader loader(blended(folder, "0.25", "0.75"), 7, 1000, 1);
  ASSERT_EQ(loader.num_sets(), 2);
  EXPECT_EQ(loader.num_train_samples(0), 14);
  EXPECT_EQ(loader.num_train_samples(1), 4);
  EXPECT_EQ(loader.num_train_samples(), 18);
  std::vector<std::vector<int64_t>> taken(2);
  for (int64_t position = 0; position < 4 * 28; ++position) {
    const Loader::Origin from = loader.origin(position);
    auto& of_set = taken[static_cast<size_t>(from.set)];
    EXPECT_EQ(from.epoch, std::ssize(of_set) / loader.num_train_samples(from.set));
    of_set.push_back(from.sample);
    const Batch batch = loader.train(std::array{position});
    EXPECT_EQ(batch.tokens[0], from.set * 500 + from.sample * 7);
    EXPECT_LE(std::abs(static_cast<double>(taken[0].size()) - 0.25 * static_cast<double>(position + 1)), 1);
  }
  ASSERT_EQ(taken[0].size(), 28u);
  for (size_t set = 0; set < 2; ++set) {
    const auto count = static_cast<size_t>(loader.num_train_samples(static_cast<int64_t>(set)));
    for (size_t first = 0; first < taken[set].size(); first += count) {
      std::vector<int64_t> epoch(taken[set].begin() + static_cast<std::ptrdiff_t>(first),
                                 taken[set].begin() + static_cast<std::ptrdiff_t>(first + count));
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, range(0, static_cast<int64_t>(count)));
    }
  }
}

TEST(Loader, HoldsOutATailOfEverySetAndMixesThem) {
  const TempFolder folder;
  DataConfig data = blended(folder, "1", "1");
  data.valid_fraction = 0.5;
  const Loader loader(data, 7, 1000, 1);
  ASSERT_EQ(loader.num_valid_samples(), 7 + 2);
  const Batch batch = loader.valid(range(0, 10));
  std::vector<int32_t> first;
  for (size_t i = 0; i < 9; ++i) first.push_back(batch.tokens[i * 7]);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  std::sort(first.begin(), first.end());
  EXPECT_THAT(first, ElementsAre(50, 57, 64, 71, 78, 85, 92, 515, 522));
  EXPECT_EQ(batch.num_counted, 9 * 7);  // the row past the end counts nothing
  EXPECT_EQ(Loader(data, 7, 1000, 2).valid(range(0, 10)).tokens, batch.tokens);
}

TEST(Loader, NamesTheSetOfABlendThatIsTooShort) {
  const TempFolder folder;
  DataConfig data = blended(folder, "0.001", "0.999");
  EXPECT_THAT(config_error(data, 40), HasSubstr("/b has 30 tokens, fewer than one sample of S + 1 = 41"));
  write_documents(folder / "b", {});
  EXPECT_THAT(config_error(data, 8), HasSubstr("/b has 0 tokens"));
  write_documents(folder / "b", {{}, {}});
  EXPECT_THAT(config_error(data, 8), HasSubstr("/b has 0 tokens"));
}

TEST(Loader, RefusesIdsOutsideTheVocabulary) {
  const TempFolder folder;
  const Loader loader(counting_data(folder / "t", 100), 99, 99, 1);
  EXPECT_THROW(loader.train(range(0, 1)), ConfigError);
}

}  // namespace
}  // namespace moesaic
