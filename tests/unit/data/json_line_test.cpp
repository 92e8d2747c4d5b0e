#include "data/json_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "support/thrown.h"

namespace moesaic {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& line, std::string_view key = "text") {
  std::string scratch;
  return std::string(json_string(line, key, scratch));
}

std::string error_of(const std::string& line) {
  return message_of<IoError>([&] { text_of(line); });
}

TEST(JsonLine, FindsTheStringAmongAnyOtherMembers) {
  EXPECT_EQ(text_of(R"({"text":"a b"})"), "a b");
  EXPECT_EQ(text_of(R"( { "text" : "" } )"), "");
  EXPECT_EQ(
      text_of(R"({"meta":{"text":"no","a":[1,-2.5e+3,[],{},[{"b":null}]]},"ok":true,"text":"yes","z":0})"),
      "yes");
  EXPECT_EQ(text_of(R"({"t\u0065xt":"by an escaped key"})"), "by an escaped key");
  EXPECT_EQ(text_of(R"({"text":"x","body":"y"})", "body"), "y");
}

TEST(JsonLine, ReplacesEscapes) {
  EXPECT_EQ(text_of(R"({"text":"\"\\\/\b\f\n\r\t"})"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(text_of(R"({"text":"\u0041\u00e9\u20AC\ud83d\uDE00 \u0000end"})"),
            std::string("A\u00e9\u20ac\U0001F600 \0end", 15));
  EXPECT_EQ(text_of("{\"text\":\"caf\u00e9 \U0001F600 \u20ac\"}"), "caf\u00e9 \U0001F600 \u20ac");
}

TEST(JsonLine, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(error_of(""), HasSubstr("expected an object (at byte 1"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(R"({"body":"x"})"), HasSubstr("no key \"text\""));
  EXPECT_THAT(error_of("{}"), HasSubstr("no key \"text\""));
  EXPECT_THAT(error_of(R"({"text":3})"), HasSubstr("does not hold a string (at byte 9"));
  EXPECT_THAT(error_of(R"({"text":"a","text":"b"})"), HasSubstr("occurs twice"));
  EXPECT_THAT(error_of(R"({"text":"a)"), HasSubstr("no end"));
  EXPECT_THAT(error_of("{\"text\":\"a\nb\"}"), HasSubstr("control character"));
  EXPECT_THAT(error_of(R"({"text":"\x"})"), HasSubstr("unknown escape"));
  EXPECT_THAT(error_of(R"({"text":"\u12g4"})"), HasSubstr("hexadecimal"));
  for (const char* half :
       {R"(\ud800)", R"(\ud800x)", R"(\ud800\n)", R"(\ud800\u0041)", R"(\udc00)", R"(\ud800\ud800)"})
    EXPECT_THAT(error_of(fmt::format(R"({{"text":"{}"}})", half)), HasSubstr("surrogate")) << half;
  for (const char* bytes :
       {"\xff", "\xc0\x80", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xc3"})
    EXPECT_THAT(error_of(fmt::format("{{\"text\":\"{}\"}}", bytes)), HasSubstr("not UTF-8"));
  EXPECT_THAT(error_of(R"({"text":"a"} x)"), HasSubstr("nothing after the object"));
  EXPECT_THAT(error_of(R"({"text":"a",})"), HasSubstr("key in quotes"));
  EXPECT_THAT(error_of(R"({"n":01,"text":"a"})"), HasSubstr("expected , or }"));
  EXPECT_THAT(error_of(R"({"n":nul,"text":"a"})"), HasSubstr("expected a value"));
  EXPECT_THAT(error_of(R"({"n":[1 2],"text":"a"})"), HasSubstr("expected , or ]"));
  EXPECT_THAT(error_of("{\"n\":" + std::string(100'000, '[')), HasSubstr("64 levels"));
}

TEST(JsonLine, AgreesWithAParserOnDamagedLines) {
  const std::string good =
      R"({"id": -12.5e-3, "meta": {"a": [true, false, null, {"b": []}], "c": "\u00e9\ud83d\ude00"}, "text": "Caf)"
      "\u00e9 \U0001F600 long enough for eight bytes at a time"
      R"( \"quoted\" \n and more", "n": [0, 1e5, [], {}]})";
  const std::string alphabet = "{}[]\",:\\u0123456789eE+-. tfnx\x01\x7f\x80\xc3\xe2\xed\xf0\n";
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string line = good;
    for (uint32_t i = 0; i < 1 + random() % 3; ++i) {
      const size_t at = random() % line.size();
      const char c = alphabet[random() % alphabet.size()];
      if (random() % 3 == 0) {
        line.erase(at, 1);
      } else if (random() % 2 == 0) {
        line.insert(at, 1, c);
      } else {
        line[at] = c;
      }
    }
    const auto tree = nlohmann::json::parse(line, nullptr, false);
    std::string scratch, mine;
    bool taken = true;
    try {
      mine = std::string(json_string(line, "text", scratch));
    } catch (const IoError&) {
      taken = false;
    }
    const bool right = tree.is_object() && tree.contains("text") && tree["text"].is_string();
    ASSERT_EQ(taken, right) << line;
    if (right) {
      ASSERT_EQ(mine, tree["text"].get<std::string>()) << line;
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 3000);
}

}  // namespace
}  // namespace moesaic
