#include "data/tokenizer/sentencepiece.h"

#include <gmock/gmock.h>

#include <chrono>
#include <random>

#include "base/file.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/protobuf.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder = MOESAIC_SOURCE_DIR "/tests/golden/tokenizers/";

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string number(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}
std::string bytes(int field, const std::string& value) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(value.size()) + value;
}
std::string piece(const std::string& text, float score, int type = 1) {
  std::string score_bytes(4, '\0');
  std::memcpy(score_bytes.data(), &score, 4);
  return bytes(1, bytes(1, text) + "\x15" + score_bytes + number(3, static_cast<uint64_t>(type)));
}
const std::string kBpe = bytes(2, number(3, 2));
const std::string kFirst = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3);
const std::string kPlain = bytes(3, number(3, 0) + number(4, 0));  // no dummy prefix, spaces kept

std::vector<int32_t> ids(const std::string& model, const std::string& text) {
  return parse_sentencepiece(model, "t.model")->encode(text);
}
template <class E>
std::string refusal(const std::string& model) {
  return message_of<E>([&] { parse_sentencepiece(model, "t.model"); });
}

TEST(SentencePiece, MergesByScoreThroughCharactersThatAreNoPieces) {
  // 3 "ab", 4 "abc", 5 "bc", 6 "d"; a, b and c alone are unknown.
  const std::string model =
      kFirst + piece("ab", -2) + piece("abc", -1) + piece("bc", -0.5) + piece("d", -3) + kBpe + kPlain;
  EXPECT_THAT(ids(model, "abc"), ElementsAre(4));  // bc first, then a + bc
  EXPECT_THAT(ids(model, "abd"), ElementsAre(3, 6));
  EXPECT_THAT(ids(model, "xyad"), ElementsAre(0, 6));  // unknown neighbours are one
  EXPECT_THAT(ids(model, ""), ElementsAre());
}

TEST(SentencePiece, PutsASpaceFirstAndDropsThoseThatRepeat) {
  const std::string pieces = kFirst + piece("▁", -1) + piece("a", -2) + piece("▁a", -0.5);
  EXPECT_THAT(ids(pieces + kBpe, "  a   a "), ElementsAre(5, 5));
  EXPECT_THAT(ids(pieces + kBpe + kPlain, "a  a "), ElementsAre(4, 3, 5, 3));
  EXPECT_THAT(ids(pieces + kBpe, "   "), ElementsAre());
}

TEST(SentencePiece, LeavesUserDefinedSymbolsWhole) {
  const std::string model = kFirst + piece("a", -1) + piece("b", -2) + piece("ab", -0.5) + piece("ba", 0, 4) +
                            piece("aa", -0.1F) + kBpe + kPlain;
  EXPECT_THAT(ids(model, "abab"), ElementsAre(3, 6, 4));  // a, ba, b
  EXPECT_THAT(ids(model, "aaba"), ElementsAre(7, 6));
}

TEST(SentencePiece, DecodesWhatEachKindOfPieceStandsFor) {
  std::string model = kFirst + piece("▁a", -1) + piece("▁", -2);
  for (int b = 0; b < 256; ++b) model += piece(fmt::format("<0x{:02X}>", b), 0, 6);
  model += bytes(2, number(3, 2) + number(35, 1)) + bytes(3, number(4, 0));
  const auto tokenizer = parse_sentencepiece(model, "t.model");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 3, 3, 2}), "a a");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{4, 4, 3}), "  a");  // the first space was put there
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{5 + 0xE2, 5 + 0x82}), "\xE2\x82");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0}), " \xE2\x81\x87 ");
  EXPECT_THAT(tokenizer->encode("\xC3\xA9"), ElementsAre(4, 5 + 0xC3, 5 + 0xA9));
  EXPECT_THAT(message_of([&] { (void)tokenizer->decode(std::vector<int32_t>{261}); }), HasSubstr("0 to 260"));
  EXPECT_EQ(tokenizer->end_of_document(), 2);
}

TEST(SentencePiece, RefusesByNameWhatItDoesNotKnow) {
  EXPECT_THAT(refusal<ConfigError>(kFirst + bytes(2, number(3, 1))), HasSubstr("unigram"));
  EXPECT_THAT(refusal<ConfigError>(kFirst),
              HasSubstr("unigram"));  // what the format says when nothing is said
  EXPECT_THAT(refusal<ConfigError>(kFirst + bytes(2, number(3, 4))), HasSubstr("char"));
  EXPECT_THAT(refusal<ConfigError>(kFirst + piece("x", 0, 5) + kBpe), HasSubstr("unused"));
  EXPECT_THAT(refusal<ConfigError>(kFirst + kBpe + bytes(5, bytes(2, "x"))), HasSubstr("denormalizer"));
  const std::string no_end = bytes(2, number(3, 2) + number(42, ~uint64_t{0}));
  EXPECT_THAT(refusal<ConfigError>(piece("<unk>", 0, 2) + piece("x", 0) + no_end),
              HasSubstr("ends a document"));
  EXPECT_EQ(parse_sentencepiece(kFirst + no_end, "t.model")->end_of_document(), 2);  // by its usual name
}

TEST(SentencePiece, RefusesWhatIsDamaged) {
  EXPECT_THAT(refusal<IoError>(""), HasSubstr("no pieces"));
  EXPECT_THAT(refusal<IoError>(kFirst + piece("", 0) + kBpe), HasSubstr("piece 3 has 0 bytes"));
  EXPECT_THAT(refusal<IoError>(kFirst + piece(std::string(513, 'a'), 0) + kBpe), HasSubstr("513 bytes"));
  EXPECT_THAT(refusal<IoError>(kFirst + piece("\xFF", 0) + kBpe), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal<IoError>(kFirst + piece("a", NAN) + kBpe), HasSubstr("score"));
  EXPECT_THAT(refusal<IoError>(kFirst + piece("a", 0, 7) + kBpe), HasSubstr("type 7"));
  EXPECT_THAT(refusal<IoError>(kFirst + piece("<s>", 0) + kBpe), HasSubstr("1 and 3"));
  EXPECT_THAT(refusal<IoError>(piece("a", 0) + kBpe), HasSubstr("unknown one"));
  EXPECT_THAT(refusal<IoError>(kFirst + bytes(2, number(3, 2) + number(42, 9))), HasSubstr("piece 9 of 3"));
  EXPECT_THAT(refusal<IoError>(kFirst + bytes(2, number(3, 2) + number(35, 1))), HasSubstr("<0x00>"));
  EXPECT_THAT(refusal<IoError>(kFirst + kBpe + bytes(3, bytes(2, "abc"))), HasSubstr("charsmap"));
  EXPECT_THAT(refusal<IoError>(number(1, 5)), HasSubstr("another type"));
}

TEST(SentencePiece, EndsInAMessageOrWorksWhateverIsCutOrChanged) {
  const std::string whole = read_file(kFolder + "sp_rules.model", 1 << 20);
  const auto survives = [](const std::string& model) {
    try {
      const auto tokenizer = parse_sentencepiece(model, "t.model");
      (void)tokenizer->decode(tokenizer->encode("The ﬁrst …\t word\xFF é"));
    } catch (const Error&) {
    }
  };
  for (size_t length = 0; length < whole.size(); length += 7) survives(whole.substr(0, length));
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string model = whole;
    for (int i = 0; i < 4; ++i) model[random() % model.size()] = static_cast<char>(random());
    survives(model);
  }
}

TEST(SentencePiece, IsLinearInRepetition) {
  for (const char* name : {"sp_llama.model", "sp_rules.model", "sp_suffix.model"}) {
    const auto tokenizer = open_tokenizer(kFolder + name);
    for (const char byte : {'a', ' ', '<', '\xFF'}) {
      const auto start = std::chrono::steady_clock::now();
      (void)tokenizer->encode(std::string(300'000, byte));
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 10) << name << ' ' << byte;  // minutes, were it quadratic
    }
  }
}

TEST(ProtobufReader, ReadsEveryKindOfFieldAndRefusesTheRest) {
  const std::string where = "t.model";
  const auto first = [&](const std::string& message) {
    ProtobufReader reader(message, where);
    ProtobufReader::Field field;
    EXPECT_TRUE(reader.next(field));
    return field;
  };
  EXPECT_EQ(first(number(3, 300)).value, 300u);
  EXPECT_EQ(first(number(42, ~uint64_t{0})).as_int(), -1);
  EXPECT_EQ(first(std::string("\x09\x01\0\0\0\0\0\0\x80", 9)).value, 0x8000000000000001u);
  EXPECT_EQ(first(std::string("\x15\0\0\x80\x3F", 5)).as_float(), 1.0F);
  EXPECT_EQ(first(bytes(7, "text")).bytes, "text");
  for (const std::string& broken :
       {std::string("\x08"), std::string("\x08\x80"), std::string("\x12\x05") + "abc",
        std::string("\x15\0\0", 3), std::string("\x0B"), std::string("\x00\x01", 2),
        "\x08" + std::string(10, '\xFF'), "\x12" + varint(~uint64_t{0})})
    EXPECT_THAT(message_of<IoError>([&] { first(broken); }), HasSubstr("t.model"));
}

TEST(Charsmap, KnowsNoRuleWhoseReplacementLiesOutside) {
  // Unit 0 leads to 'a' at 1 ^ 'a'; that has a leaf at 1 ^ 'a' ^ 1, whose value is the place of the replacement.
  std::vector<uint32_t> units(128, 0x80000000);
  units[0] = 1 << 10;
  units[1 ^ 'a'] = 'a' | 1 << 8 | 1 << 10;
  for (const auto& [value, found] : {std::pair(0u, true), std::pair(2u, true), std::pair(4u, false)}) {
    units['a'] = 0x80000000 | value;
    std::string blob(4 + 4 * units.size(), '\0');
    const auto size = static_cast<uint32_t>(4 * units.size());
    std::memcpy(blob.data(), &size, 4);
    std::memcpy(blob.data() + 4, units.data(), size);
    const Charsmap map(blob + "bcd" + std::string(1, '\0'), "t.model");
    const auto rule = map.longest("ax");
    ASSERT_EQ(rule.has_value(), found) << value;
    if (found) {
      EXPECT_EQ(rule->length, 1u);
      EXPECT_EQ(rule->replacement, std::string("bcd").substr(value));
    }
    EXPECT_FALSE(map.longest("xa"));
  }
}

TEST(Charsmap, ReadsNothingOutsideOfADamagedTrie) {
  std::mt19937 random(9);
  for (int round = 0; round < 2000; ++round) {
    const uint32_t size = 4 * (1 + random() % 300);
    std::string blob(4, '\0');
    std::memcpy(blob.data(), &size, 4);
    for (uint32_t i = 0; i < size + 16; ++i) blob += static_cast<char>(random() % 3 == 0 ? random() : 'a');
    const Charsmap map(blob, "t.model");
    for (const char* text : {"aaaaaaaaaaaaaa", "abc", "\xFF\x00", ""}) {
      if (const auto rule = map.longest(text)) {
        EXPECT_LE(rule->length, std::string_view(text).size());
        EXPECT_LE(rule->replacement.size(), 16u);
      }
    }
  }
}

}  // namespace
}  // namespace moesaic
