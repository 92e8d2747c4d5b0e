// Case 29, data: a loader's state at the end of an epoch skipped the next one (verl 7401); the sample index of a set of tiny
// weight passed its end (Megatron-LM 705, 1672); pointer sums in 32 bits (Megatron-LM 1056); the mask of packed documents
// was ignored by a fused attention (Megatron-LM 2357, torchtitan 4801).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "data/read_ahead.h"
#include "support/setup_z.h"
#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void write_documents(const std::string& prefix, const std::vector<std::vector<int32_t>>& documents) {
  TokenFileWriter writer(prefix, DType::i32);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

std::vector<int32_t> counting(int32_t first, int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

DataConfig all_of(const std::string& train) {
  DataConfig data;
  data.train = train;
  data.valid_fraction = 0;
  return data;
}

// (a) 10 samples, batches of 4: the first epoch ends inside step 2, the second at the end of step 4.

TEST(Case29, ResumeAnywhereInAnEpochReadsTheSameSamples) {
  const TempFolder folder;
  write_documents(folder / "t", {counting(0, 41)});
  // A step at a time through the read-ahead, as in training; the first token tells the sample.
  const auto samples_from = [&](int64_t step) {
    const Loader loader(all_of(folder / "t"), 4, 41, 7);
    ReadAhead ahead([&](std::span<const int64_t> positions) { return loader.train(positions); }, 4, 2);
    std::vector<int64_t> samples;
    for (; step < 15; ++step) {
      const Batch batch = ahead.take(std::array{4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3});
      for (size_t b = 0; b < 4; ++b) samples.push_back(batch.tokens[4 * b] / 4);
    }
    return samples;
  };
  const auto whole = samples_from(0);
  for (auto epoch = whole.begin(); epoch != whole.end(); epoch += 10) {
    std::vector<int64_t> seen(epoch, epoch + 10);
    std::sort(seen.begin(), seen.end());
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
  for (int64_t step = 1; step < 15; ++step)
    EXPECT_EQ(samples_from(step), std::vector<int64_t>(whole.begin() + 4 * step, whole.end())) << step;
}

TEST(Case29, ARunThatResumesAroundTheEndOfAnEpochIsTheSameRun) {
  const TrainRun run;
  Config c = run.config("whole");
  write_documents(run.folder() / "ten", {[] {
                    std::vector<int32_t> ids(161);
                    for (int i = 0; i < 161; ++i) ids[static_cast<size_t>(i)] = i * i % 67;
                    return ids;
                  }()});
  c.data = all_of(run.folder() / "ten");
  c.train.global_batch = 4;
  c.train.save_every = 1;
  run.train(c);
  for (const int64_t step : {2, 3, 5}) {  // 8, 12 and 20 samples
    c.run.name = fmt::format("from_{}", step);
    c.run.resume = run.checkpoint("whole", step);
    run.train(c);
    const auto whole = run.metrics("whole"), resumed = run.metrics(c.run.name);
    ASSERT_EQ(resumed.size(), static_cast<size_t>(6 - step));
    for (size_t i = 0; i < resumed.size(); ++i)
      EXPECT_EQ(timeless(resumed[i]), timeless(whole[i + static_cast<size_t>(step)])) << step;
  }
}

// (b)

TEST(Case29, ATinyWeightNeverPassesTheEndOfItsSet) {
  const TempFolder folder;
  write_documents(folder / "a", {counting(0, 41), {}});
  write_documents(folder / "b", {{}, counting(100, 20), {}, counting(120, 21)});
  const Loader loader(all_of(fmt::format("0.001 {}, 0.999 {}", folder / "a", folder / "b")), 4, 141, 7);
  int64_t rare = 0;
  for (int64_t position = 0; position < 100'000; ++position) {
    const Loader::Origin from = loader.origin(position);
    ASSERT_TRUE(from.sample >= 0 && from.sample < 10) << position;
    rare += from.set == 0;
    ASSERT_LE(std::abs(static_cast<double>(rare) - 0.001 * static_cast<double>(position + 1)), 1) << position;
  }
  EXPECT_EQ(rare, 100);
  std::vector<int64_t> positions(5000);
  std::iota(positions.begin(), positions.end(), 0);
  const Batch batch = loader.train(positions);
  EXPECT_EQ(batch.num_sequences, 5000);
  EXPECT_EQ(std::count_if(batch.tokens.begin(), batch.tokens.end(), [](int32_t id) { return id < 100; }),
            5 * 4);
}

TEST(Case29, AnEmptySetIsRefusedByName) {
  const TempFolder folder;
  write_documents(folder / "a", {counting(0, 41)});
  for (const auto& documents : std::vector<std::vector<std::vector<int32_t>>>{{}, {{}}, {{1, 2}}}) {
    write_documents(folder / "b", documents);
    EXPECT_THAT(message_of([&] {
                  Loader(all_of(fmt::format("0.999 {}, 0.001 {}", folder / "a", folder / "b")), 4, 41, 7);
                }),
                HasSubstr("/b has "));
  }
}

// (c)

TEST(Case29, OffsetsPast2To31And2To32AreExact) {
  const TempFolder folder;
  // Documents of 900 million, 1.3 billion and 10 tokens of 4 bytes; the second is two sequences. Nearly all of it is a hole.
  const std::vector<int32_t> lengths{900'000'000, 700'000'000, 600'000'000, 10};
  std::string index("MMIDIDX\0\0", 9);
  const auto add = [&](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  add(uint64_t{1}), add(uint8_t{4}), add(uint64_t{4}), add(uint64_t{4});
  for (const int32_t length : lengths) add(length);
  int64_t at = 0;
  for (const int32_t length : lengths) {
    add(at);
    at += int64_t{4} * length;
  }
  for (const int64_t first : {0, 1, 3, 4}) add(first);
  spit(folder / "t.idx", index);
  const std::vector<int64_t> marks{536'870'911,   536'870'912,   899'999'999,   900'000'000,
                                   1'073'741'824, 2'199'999'999, 2'200'000'000, 2'200'000'009};
  const int file = ::open((folder / "t.bin").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, at), 0);
  for (const int64_t token : marks) {
    const auto id = static_cast<int32_t>(token % 1'000'003);
    ASSERT_EQ(::pwrite(file, &id, 4, 4 * token), 4);
  }
  ::close(file);

  const TokenFile tokens(folder / "t");
  EXPECT_EQ(tokens.num_tokens(), 2'200'000'010);
  EXPECT_EQ(tokens.document_start(1), 900'000'000);
  EXPECT_EQ(tokens.document_start(2), 2'200'000'000);
  EXPECT_THAT(tokens.document_starts(899'999'990, 2'200'000'005), ElementsAre(900'000'000, 2'200'000'000));
  std::vector<int32_t> id(1);
  for (const int64_t token : marks) {
    tokens.read(token, id, 1 << 20);
    EXPECT_EQ(id[0], token % 1'000'003) << token;
  }
  // And through samples: the one that holds a mark holds it at the right place.
  DataConfig data = all_of(folder / "t");
  data.valid = data.train;
  const int64_t S = 1000;
  const Loader loader(data, S, 1 << 20, 1);
  EXPECT_EQ(loader.num_train_samples(), 2'200'000);
  for (const int64_t token : {marks[1], marks[4], marks[5]}) {
    const Batch batch = loader.valid(std::array{token / S});
    EXPECT_EQ(batch.tokens[static_cast<size_t>(token % S)], token % 1'000'003);
  }
}

// (d) Two documents in one row; then another token in the first.

struct TwoDocuments {
  std::vector<int32_t> positions, targets;
  std::vector<float> logits;       // [S, V]
  std::vector<float> d_embedding;  // [V, D]
};

constexpr int32_t kFirst = 6, kSecond = 11;  // tokens of the documents; a sample of 16 and one target

TwoDocuments run_two_documents(Config c, int32_t changed, bool packed) {
  const TempFolder folder;
  std::vector<int32_t> first = counting(1, kFirst);
  first[3] = changed;
  write_documents(folder / "t", {first, counting(40, kSecond)});
  c.data = all_of(folder / "t");
  c.data.packed_documents = packed;
  const Loader loader(c.data, c.train.seq_len, c.model.vocab, 1);
  TwoDocuments found;
  std::mutex mutex;
  Tensors gradients;
  run_ranks(c.run, Mesh(c.layout).world_size(), [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    const Batch batch = loader.train(std::array{int64_t{0}});
    const StepResult step = session.step([&](auto positions) { return loader.train(positions); }, 0, 0);
    EXPECT_EQ(step.counted, packed ? 15 : 16);
    std::vector<float> logits;
    if (rank.world_size == 1) {
      session.feed().send(batch, 0, 0);
      logits =
          fetch_floats(*rank.device, session.stage().logits(), DType::f32, c.train.seq_len * c.model.vocab);
    }
    const std::lock_guard lock(mutex);
    collect_gradients(session, gradients);
    if (rank.rank == 0)
      found.positions = batch.positions, found.targets = batch.targets, found.logits = std::move(logits);
  });
  found.d_embedding = gradients.at("embedding");
  return found;
}

Config two_documents_config() {
  Config c = small_config();
  c.train.global_batch = c.train.micro_batch = 1;
  c.balance.aux_coef = 0;  // which does couple documents
  c.model.top_k =
      c.model.num_experts;  // so that no expert's number of rows depends on what the first document says
  return c;
}

TEST(Case29, ADocumentDoesNotFeelTheOneBeforeIt) {
  for (const int64_t n : {1, 2}) {
    const Config c = on_ranks(two_documents_config(), n);
    const TwoDocuments one = run_two_documents(c, 4, true), other = run_two_documents(c, 20, true);
    EXPECT_THAT(one.positions, ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_EQ(one.targets[kFirst - 1], -1);  // it would be the second document's first token
    EXPECT_EQ(one.targets[kFirst], 41);
    if (n == 1) {
      const auto second = kFirst * c.model.vocab;  // the first logit of the second document
      EXPECT_TRUE(std::equal(one.logits.begin() + second, one.logits.end(), other.logits.begin() + second));
      EXPECT_NE(one.logits, other.logits);
    }
    // Tokens 40 .. 49 occur in the second document alone: the gradient that reaches it.
    const auto begin = 40 * c.model.hidden, end = 50 * c.model.hidden;
    EXPECT_TRUE(std::equal(one.d_embedding.begin() + begin, one.d_embedding.begin() + end,
                           other.d_embedding.begin() + begin));
    EXPECT_GT(norm_of({one.d_embedding.begin() + begin, one.d_embedding.begin() + end}), 0);
  }
}

TEST(Case29, WithoutPackingItDoes) {
  const Config c = two_documents_config();
  const TwoDocuments one = run_two_documents(c, 4, false), other = run_two_documents(c, 20, false);
  const auto second = kFirst * c.model.vocab;
  EXPECT_FALSE(std::equal(one.logits.begin() + second, one.logits.end(), other.logits.begin() + second));
  EXPECT_EQ(one.targets[kFirst - 1], 40);
}

}  // namespace
}  // namespace moesaic::test
