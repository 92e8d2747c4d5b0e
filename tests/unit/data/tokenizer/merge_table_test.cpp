#include "data/tokenizer/merge_table.h"

#include <gmock/gmock.h>

#include <random>

namespace moesaic {
namespace {

using Row = std::vector<int32_t>;

/// The definition, as it stands.
Row merged(const MergeTable& table, Row row) {
  while (true) {
    const MergeTable::Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      const auto* merge = table.find(row[i], row[i + 1]);
      if (merge && (!best || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (!best) return row;
    row[at] = best->result;
    row.erase(row.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(MergeTable, TakesTheLowestRankFirstThenTheLeftmost) {
  MergeTable table(3);
  table.set(0, 1, {1, 10});
  table.set(1, 2, {0, 11});
  table.set(0, 0, {2, 12});
  MergeTable::Scratch scratch;
  Row row{0, 1, 2};
  table.apply(row, scratch);
  EXPECT_THAT(row, testing::ElementsAre(0, 11));
  row = {0, 0, 0};
  table.apply(row, scratch);
  EXPECT_THAT(row, testing::ElementsAre(12, 0));
  row = {-5, 0, 1};  // not a symbol
  table.apply(row, scratch);
  EXPECT_THAT(row, testing::ElementsAre(-5, 10));
}

TEST(MergeTable, KeepsTheLaterOfTwoMergesOfAPair) {
  MergeTable table(1);
  table.set(3, 4, {0, 5});
  table.set(3, 4, {1, 6});
  EXPECT_EQ(table.find(3, 4)->result, 6);
  EXPECT_EQ(table.find(4, 3), nullptr);
}

TEST(MergeTable, GivesShortAndLongRowsWhatTheDefinitionGives) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    // Symbols stand for texts over {a, b}, as tokens do: equal texts are one symbol.
    std::vector<std::string> texts{"a", "b"};
    MergeTable table(40);
    for (int32_t rank = 0; rank < 40; ++rank) {
      const auto left = static_cast<int32_t>(random() % texts.size());
      const auto right = static_cast<int32_t>(random() % texts.size());
      const std::string text = texts[static_cast<size_t>(left)] + texts[static_cast<size_t>(right)];
      const auto known = std::find(texts.begin(), texts.end(), text);
      const auto result = static_cast<int32_t>(known - texts.begin());
      if (known == texts.end()) texts.push_back(text);
      table.set(left, right, {static_cast<int32_t>(random() % 8), result});  // ranks may be equal
    }
    MergeTable::Scratch scratch;
    for (const size_t length : {0, 1, 2, 3, 17, 48, 49, 200}) {
      Row row(length);
      for (auto& symbol : row) symbol = static_cast<int32_t>(random() % 2);
      const Row expected = merged(table, row);
      table.apply(row, scratch);
      ASSERT_EQ(row, expected) << "length " << length << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace moesaic
