#include "data/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/file.h"
#include "support/temp_folder.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder = MOESAIC_SOURCE_DIR "/tests/golden/tokenizers/";

/// Letters a to e, "ab", "abc", and an end.
json small() {
  return json::parse(R"({
    "added_tokens": [{"id": 9, "content": "</s>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "ab": 5, "abc": 6, "?": 7, " ": 8},
              "merges": ["a b", ["ab", "c"]]}})");
}

std::unique_ptr<Tokenizer> parsed(const json& file, const std::string& end = "") {
  return parse_tokenizer_json(file.dump(), "t.json", end);
}
std::vector<int32_t> ids(const json& file, const std::string& text) {
  return parsed(file)->encode(text);
}
template <class E>
std::string refusal(const json& file) {
  return message_of<E>([&] { parsed(file); });
}

TEST(TokenizerJson, MergesAndKnowsItsAddedTokens) {
  EXPECT_THAT(ids(small(), "abcab</s>d"), ElementsAre(6, 5, 9, 3));
  EXPECT_EQ(parsed(small())->vocab_size(), 10);
  EXPECT_EQ(parsed(small())->end_of_document(), 9);
  EXPECT_EQ(parsed(small())->decode(std::vector<int32_t>{6, 9, 3}), "abcd");
  EXPECT_THAT(message_of([] { (void)parsed(small())->decode(std::vector<int32_t>{10}); }),
              AllOf(HasSubstr("t.json"), HasSubstr("0 to 9"), HasSubstr("10")));
  EXPECT_THAT(message_of([] { (void)parsed(small())->decode(std::vector<int32_t>{-1}); }), HasSubstr("-1"));
}

TEST(TokenizerJson, DropsOrReplacesWhatIsUnknown) {
  json file = small();
  EXPECT_THAT(ids(file, "axxb"), ElementsAre(5));  // without unk_token the unknown vanishes before merging
  file["model"]["unk_token"] = "?";
  EXPECT_THAT(ids(file, "axxb"), ElementsAre(0, 7, 7, 1));
  file["model"]["fuse_unk"] = true;
  EXPECT_THAT(ids(file, "axxb"), ElementsAre(0, 7, 1));
}

TEST(TokenizerJson, MarksOnlyTheStartOfTheTextWithPrependFirst) {
  json file = small();
  file["model"]["vocab"]["_"] = 10;
  const json marks = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  const json split = {{"type", "Split"}, {"pattern", {{"String", "d"}}}, {"behavior", "Isolated"}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, marks}}};
  EXPECT_THAT(ids(file, "cd c"), ElementsAre(10, 2, 3, 10, 2));
  EXPECT_THAT(ids(file, "</s>c"), ElementsAre(9, 2));
}

TEST(TokenizerJson, TakesAPieceThatIsATokenWholeWithIgnoreMerges) {
  json file = small();
  file["model"]["merges"] = json::array({"a b"});
  EXPECT_THAT(ids(file, "abc"), ElementsAre(5, 2));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(ids(file, "abc"), ElementsAre(6));
  EXPECT_THAT(ids(file, "abcd"), ElementsAre(5, 2, 3));
}

TEST(TokenizerJson, RefusesByNameWhatItDoesNotKnow) {
  const auto with = [](const char* part, json value) {
    json file = small();
    file[part] = std::move(value);
    return refusal<ConfigError>(file);
  };
  EXPECT_THAT(with("normalizer", {{"type", "BertNormalizer"}}),
              AllOf(HasSubstr("t.json"), HasSubstr("BertNormalizer")));
  EXPECT_THAT(with("normalizer", {{"type", "Precompiled"}}), HasSubstr("Precompiled"));
  EXPECT_THAT(with("pre_tokenizer", {{"type", "UnicodeScripts"}}), HasSubstr("UnicodeScripts"));
  EXPECT_THAT(
      with("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "BertPreTokenizer"}}}}}),
      HasSubstr("BertPreTokenizer"));
  EXPECT_THAT(with("pre_tokenizer", {{"type", "Punctuation"}, {"behavior", "Sideways"}}),
              HasSubstr("Sideways"));
  EXPECT_THAT(
      with("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}}),
      HasSubstr("last"));
  EXPECT_THAT(with("decoder", {{"type", "WordPiece"}}), HasSubstr("WordPiece"));
  EXPECT_THAT(with("post_processor", {{"type", "Novel"}}), HasSubstr("Novel"));
  EXPECT_THAT(with("model", {{"type", "Unigram"}, {"vocab", json::array()}}), HasSubstr("Unigram"));
  const auto model = [](const char* key, json value) {
    json file = small();
    file["model"][key] = std::move(value);
    return refusal<ConfigError>(file);
  };
  EXPECT_THAT(model("dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(model("end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(model("continuing_subword_prefix", "##"), HasSubstr("continuing_subword_prefix"));
}

TEST(TokenizerJson, RefusesWhatIsDamaged) {
  const auto model = [](const char* key, json value) {
    json file = small();
    file["model"][key] = std::move(value);
    return refusal<IoError>(file);
  };
  EXPECT_THAT(model("vocab", {{"a", 0}, {"b", 0}}), HasSubstr("same id, 0"));
  EXPECT_THAT(model("vocab", {{"a", -1}}), HasSubstr("whole number"));
  EXPECT_THAT(model("vocab", {{"a", 3'000'000'000u}}), HasSubstr("whole number"));
  EXPECT_THAT(model("vocab", json::array()), HasSubstr("vocab"));
  EXPECT_THAT(model("merges", {"a z"}), AllOf(HasSubstr("merge 0"), HasSubstr("\"z\"")));
  EXPECT_THAT(model("merges", {"a  b"}), HasSubstr("merge 0"));
  EXPECT_THAT(model("merges", {7}), HasSubstr("merge 0"));
  EXPECT_THAT(model("unk_token", "none"), HasSubstr("unk_token"));
  EXPECT_THAT(model("byte_fallback", 3), HasSubstr("byte_fallback"));
  json file = small();
  file["model"]["vocab"]["far"] = 1'000'000;  // would be a table of a million empty tokens
  EXPECT_THAT(refusal<IoError>(file), HasSubstr("1000000"));
  file = small();
  file["added_tokens"][0]["id"] = 3;
  EXPECT_THAT(refusal<IoError>(file), AllOf(HasSubstr("</s>"), HasSubstr("same id, 3")));
  file["added_tokens"][0]["content"] = "a";
  EXPECT_THAT(refusal<IoError>(file), HasSubstr("added token \"a\""));
  EXPECT_THAT(message_of<IoError>([] { parse_tokenizer_json("[]", "t.json", ""); }), HasSubstr("t.json"));
  EXPECT_THAT(message_of<IoError>([] { parse_tokenizer_json("\xFF", "t.json", ""); }),
              HasSubstr("damaged JSON"));
}

TEST(TokenizerJson, EndsInAMessageWhereverTheFileIsCut) {
  const std::string whole = small().dump();
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(parse_tokenizer_json(whole.substr(0, length), "t.json", ""), IoError) << length;
}

TEST(TokenizerJson, FindsTheEndOfADocument) {
  json file = small();
  file["added_tokens"][0]["content"] = "<stop>";
  EXPECT_THAT(refusal<ConfigError>(file), HasSubstr("tokenizer_config.json"));
  EXPECT_EQ(parsed(file, "<stop>")->end_of_document(), 9);
  EXPECT_THAT(message_of([&] { parsed(file, "<none>"); }), HasSubstr("<none>"));

  const TempFolder folder;
  std::ofstream(folder.path() + "/tokenizer.json") << file.dump();
  std::ofstream(folder.path() + "/tokenizer_config.json") << R"({"eos_token": {"content": "<stop>"}})";
  EXPECT_EQ(open_tokenizer(folder.path())->end_of_document(), 9);
  std::ofstream(folder.path() + "/tokenizer_config.json") << R"({"eos_token": "ab"})";
  EXPECT_EQ(open_tokenizer(folder.path())->end_of_document(), 5);
  EXPECT_EQ(open_tokenizer(folder.path())->name(), folder.path() + "/tokenizer.json");
}

TEST(TokenizerJson, IsLinearInRepetition) {
  for (const char* name : {"gpt2.json", "llama3.json", "llama2.json", "qwen2.json", "falcon.json"}) {
    const auto tokenizer = open_tokenizer(kFolder + name);
    for (const std::string& text : {std::string(300'000, 'a'), std::string(300'000, ' '),
                                    std::string(300'000, '<'), std::string(300'000, '\xFF')}) {
      const auto start = std::chrono::steady_clock::now();
      const auto encoded = tokenizer->encode(text);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 10) << name << ' ' << text[0];  // minutes, were it quadratic
      if (text[0] == 'a') {
        EXPECT_EQ(tokenizer->decode(encoded), text);
      }
    }
  }
}

TEST(TokenizerJson, GivesThreadsTheSameIds) {
  const auto tokenizer = open_tokenizer(kFolder + "llama3.json");
  const std::string text = read_file(MOESAIC_SOURCE_DIR "/tests/data/excerpt.txt", 1 << 20).substr(0, 50'000);
  const auto expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (size_t i = 0; i < equal.size(); ++i)
    threads.emplace_back([&, i] { equal[i] = tokenizer->encode(text) == expected; });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(equal, testing::Each(true));
}

TEST(TokenizerJson, GivesTheSameIdsFromTheCacheAndAfterItOverflowed) {
  const auto tokenizer = open_tokenizer(kFolder + "gpt2.json");
  const std::string word = " thoroughly";
  const auto expected = tokenizer->encode(word);
  std::string text;
  for (int i = 0; i < 70'000; ++i) text += " w" + std::to_string(i) + "x";
  (void)tokenizer->encode(text);
  EXPECT_EQ(tokenizer->encode(word), expected);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(TokenizerJson, GivesBackRandomText) {
  std::mt19937 random(11);
  for (const char* name : {"gpt2.json", "llama3.json", "deepseek.json"}) {
    const auto tokenizer = open_tokenizer(kFolder + name);
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (int i = 0; i < 60; ++i) text += static_cast<char>("ab 1\n\t.,'sS"[random() % 11]);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
}

}  // namespace
}  // namespace moesaic
