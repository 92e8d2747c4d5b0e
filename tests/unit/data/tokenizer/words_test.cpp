#include "data/tokenizer/words.h"

#include <gmock/gmock.h>

#include "data/tokenizer/token_trie.h"

namespace moesaic {
namespace {

using testing::ElementsAre;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(ForEachWord, CutsBeforeARunOfSpaceMarks) {
  EXPECT_THAT(words_of("▁a▁▁▁b▁c▁"), ElementsAre("▁a", "▁▁▁b", "▁c", "▁"));
  EXPECT_THAT(words_of("ab"), ElementsAre("ab"));
  EXPECT_THAT(words_of("▁▁"), ElementsAre("▁▁"));
  EXPECT_THAT(words_of(""), ElementsAre());
  EXPECT_TRUE(joins_words("a", "▁b"));
  EXPECT_FALSE(joins_words("▁", "▁b"));
  EXPECT_FALSE(joins_words("a", "b▁"));
}

TEST(WordCache, RemembersAndForgetsAsAWhole) {
  WordCache cache;
  EXPECT_TRUE(cache.find("x").empty());
  size_t found = 0;
  for (int32_t i = 0; i < 100'000; ++i) {  // more than it keeps
    const std::string word = "word" + std::to_string(i);
    const std::vector<int32_t> ids{i, i + 1};
    cache.put(word, ids);
    ASSERT_THAT(cache.find(word), ElementsAre(i, i + 1));
  }
  for (int32_t i = 0; i < 100'000; ++i) {
    const auto ids = cache.find("word" + std::to_string(i));
    if (ids.empty()) continue;
    ASSERT_THAT(ids, ElementsAre(i, i + 1));
    ++found;
  }
  EXPECT_GT(found, 10'000u);
  EXPECT_LT(found, 70'000u);
  const std::string lengthy(WordCache::kMaxWord + 1, 'x');
  cache.put(lengthy, std::vector<int32_t>{1});
  EXPECT_TRUE(cache.find(lengthy).empty());
}

TEST(TokenTrie, FindsTheLongestOfTheLeftmost) {
  TokenTrie trie;
  EXPECT_TRUE(trie.empty());
  trie.add("ab", 1);
  trie.add("abcd", 2);
  trie.add("bcde", 3);
  trie.add("ab", 4);  // keeps its id
  trie.add("", 5);
  const auto match = trie.find("xxabcde", 0);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->id, 2);
  EXPECT_EQ(match->begin, 2u);
  EXPECT_EQ(match->end, 6u);
  EXPECT_EQ(trie.find("xxabce", 0)->id, 1);
  EXPECT_EQ(trie.find("xxabcde", 3)->id, 3);
  EXPECT_FALSE(trie.find("xyz", 0));
  EXPECT_FALSE(trie.match_at("xab", 0));
}

}  // namespace
}  // namespace moesaic
