#include "data/token_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kAnyVocab = int64_t{1} << 31;

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.num_tokens()));
  file.read(0, ids, kAnyVocab);
  return ids;
}

void write_documents(const std::string& prefix, DType dtype,
                     const std::vector<std::vector<int32_t>>& documents) {
  TokenFileWriter writer(prefix, dtype);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

std::string open_error(const std::string& prefix) {
  try {
    TokenFile file(prefix);
  } catch (const IoError& error) {
    return error.what();
  }
  return "no IoError";
}

template <class T>
std::string patched(std::string bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
  return bytes;
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(std::data(values)), values.size() * sizeof(T)};
}

TEST(TokenFile, GivesBackWhatWasWrittenInEveryType) {
  for (const DType dtype : {DType::u8, DType::u16, DType::i32, DType::i64}) {
    const TempFolder folder;
    write_documents(folder / "t", dtype, {{1, 2, 3}, {}, {250}, {4, 5}});
    const TokenFile file(folder / "t");
    EXPECT_EQ(file.dtype(), dtype);
    EXPECT_EQ(file.num_documents(), 4);
    EXPECT_THAT(all_tokens(file), ElementsAre(1, 2, 3, 250, 4, 5));
    std::vector<int64_t> starts;
    for (int64_t d = 0; d <= 4; ++d) starts.push_back(file.document_start(d));
    EXPECT_THAT(starts, ElementsAre(0, 3, 3, 4, 6));
  }
}

TEST(TokenFile, HasTheBytesOfMegatronsFormat) {
  const TempFolder folder;
  write_documents(folder / "t", DType::u16, {{7, 300}, {1}});
  EXPECT_EQ(slurp(folder / "t.bin"), raw<uint16_t>({7, 300, 1}));
  EXPECT_EQ(slurp(folder / "t.idx"), std::string("MMIDIDX\0\0", 9) + raw<uint64_t>({1}) + raw<uint8_t>({8}) +
                                         raw<uint64_t>({2, 3}) + raw<int32_t>({2, 1}) + raw<int64_t>({0, 4}) +
                                         raw<int64_t>({0, 1, 2}));
}

TEST(TokenFile, ReadsDocumentsOfSeveralSequences) {
  const TempFolder folder;
  spit(folder / "t.bin", raw<int32_t>({1, 2, 3, 4, 5}));
  spit(folder / "t.idx", std::string("MMIDIDX\0\0", 9) + raw<uint64_t>({1}) + raw<uint8_t>({4}) +
                             raw<uint64_t>({3, 3}) + raw<int32_t>({2, 1, 2}) + raw<int64_t>({0, 8, 12}) +
                             raw<int64_t>({0, 2, 3}));
  const TokenFile file(folder / "t");
  EXPECT_EQ(file.document_start(1), 3);
  EXPECT_THAT(all_tokens(file), ElementsAre(1, 2, 3, 4, 5));
}

TEST(TokenFile, FindsDocumentStartsOfARange) {
  const TempFolder folder;
  write_documents(folder / "t", DType::u16, {{}, {1, 2, 3}, {}, {}, {250}, {4, 5}, {}});
  const TokenFile file(folder / "t");
  EXPECT_THAT(file.document_starts(0, 6), ElementsAre(3, 4, 6));
  EXPECT_THAT(file.document_starts(0, 2), ElementsAre());
  EXPECT_THAT(file.document_starts(2, 3), ElementsAre(3));
  EXPECT_THAT(file.document_starts(3, 3), ElementsAre());
  EXPECT_THAT(file.document_starts(3, 5), ElementsAre(4));
}

TEST(TokenFile, NamesAnIdOutsideTheVocabulary) {
  const TempFolder folder;
  write_documents(folder / "t", DType::u16, {{1, 2, 259}});
  std::vector<int32_t> ids(2);
  const TokenFile file(folder / "t");
  file.read(0, ids, 259);
  try {
    file.read(1, ids, 259);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("token 2 has id 259, outside the vocabulary of V = 259"));
  }
}

TEST(TokenFile, RefusesNegativeAndHugeIds) {
  const TempFolder folder;
  write_documents(folder / "t", DType::i64, {{1}});
  std::vector<int32_t> ids(1);
  for (const int64_t id : {int64_t{-1}, int64_t{1} << 31, (int64_t{1} << 32) + 1}) {
    spit(folder / "t.bin", raw<int64_t>({id}));
    EXPECT_THROW(TokenFile(folder / "t").read(0, ids, std::numeric_limits<int64_t>::max()), ConfigError)
        << id;
  }
}

TEST(TokenFile, ReadsExactlyPast4GiB) {
  const TempFolder folder;
  const int32_t lengths[] = {700'000'000, 600'000'000,
                             10};  // bytes pass 2^31 in the first, 2^32 in the second
  const int64_t total = 1'300'000'010;
  const int file = ::open((folder / "t.bin").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, total * 4), 0);
  for (const int64_t token :
       {int64_t{536'870'912}, int64_t{700'000'000}, int64_t{1'073'741'825}, total - 1}) {
    const auto id = static_cast<int32_t>(token / 2);
    ASSERT_EQ(::pwrite(file, &id, 4, token * 4), 4);
  }
  ::close(file);
  spit(folder / "t.idx", std::string("MMIDIDX\0\0", 9) + raw<uint64_t>({1}) + raw<uint8_t>({4}) +
                             raw<uint64_t>({3, 4}) + raw<int32_t>({lengths[0], lengths[1], lengths[2]}) +
                             raw<int64_t>({0, 2'800'000'000, 5'200'000'000}) + raw<int64_t>({0, 1, 2, 3}));
  const TokenFile tokens(folder / "t");
  EXPECT_EQ(tokens.num_tokens(), total);
  EXPECT_EQ(tokens.document_start(2), 1'300'000'000);
  std::vector<int32_t> id(1);
  for (const int64_t token :
       {int64_t{536'870'912}, int64_t{700'000'000}, int64_t{1'073'741'825}, total - 1}) {
    tokens.read(token, id, kAnyVocab);
    EXPECT_EQ(id[0], token / 2);
  }
}

TEST(TokenFile, RefusesPointersThatWrapped) {
  const TempFolder folder;
  write_documents(folder / "t", DType::u16, {{1, 2}, {3}});
  spit(folder / "t.idx", patched<int64_t>(slurp(folder / "t.idx"), 34 + 8 + 8, (int64_t{1} << 32) + 4));
  EXPECT_THAT(open_error(folder / "t"), HasSubstr("sequence 1 starts at byte 4294967300"));
}

TEST(TokenFile, RefusesEveryDamagedField) {
  const TempFolder folder;
  write_documents(folder / "t", DType::u16, {{1, 2}, {3}});
  const std::string good = slurp(folder / "t.idx");
  const auto error_with = [&](const std::string& bytes) {
    spit(folder / "t.idx", bytes);
    return open_error(folder / "t");
  };
  ASSERT_EQ(error_with(good), "no IoError");
  EXPECT_THAT(error_with(patched<char>(good, 0, 'X')), HasSubstr("MMIDIDX"));
  EXPECT_THAT(error_with(patched<uint64_t>(good, 9, 2)), HasSubstr("version 2"));
  EXPECT_THAT(error_with(patched<uint8_t>(good, 17, 7)), HasSubstr("type code 7"));
  for (const uint64_t count : {~uint64_t{0}, uint64_t{1} << 63, (uint64_t{1} << 62) + 2, uint64_t{3}}) {
    EXPECT_THAT(error_with(patched<uint64_t>(good, 18, count)), HasSubstr("too few")) << count;
    EXPECT_THAT(error_with(patched<uint64_t>(good, 26, count + 1)), HasSubstr("too few")) << count;
  }
  EXPECT_THAT(error_with(patched<uint64_t>(good, 26, 0)), HasSubstr("too few"));
  EXPECT_THAT(error_with(patched<int32_t>(good, 34, -2)), HasSubstr("length -2"));
  EXPECT_THAT(error_with(patched<int32_t>(good, 38, 2'000'000'000)), HasSubstr("ends outside"));
  EXPECT_THAT(error_with(patched<int32_t>(good, 38, 0)), HasSubstr("describes 4 bytes"));
  EXPECT_THAT(error_with(patched<int64_t>(good, 42, 2)), HasSubstr("starts at byte 2"));
  EXPECT_THAT(error_with(patched<int64_t>(good, 58, 1)), HasSubstr("must start at 0"));
  EXPECT_THAT(error_with(patched<int64_t>(good, 66, 3)), HasSubstr("document entry 1"));
  EXPECT_THAT(error_with(patched<int64_t>(good, 66, -1)), HasSubstr("document entry 1"));
  EXPECT_THAT(error_with(patched<int64_t>(good, 74, 1)), HasSubstr("end at sequence 1 of 2"));
  EXPECT_THAT(error_with(good + "xx"), HasSubstr("multimodal"));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(error_with(good.substr(0, size)), "no IoError") << size;
  }
  spit(folder / "t.idx", good);
  spit(folder / "t.bin", "12345");
  EXPECT_THAT(open_error(folder / "t"), HasSubstr("ends outside"));
  spit(folder / "t.bin", "1234567");
  EXPECT_THAT(open_error(folder / "t"), HasSubstr("describes 6 bytes"));
}

TEST(TokenFile, NeverCrashesOnRandomDamage) {
  const TempFolder folder;
  write_documents(folder / "t", DType::u16, {{1, 2, 3}, {4}, {5, 6}});
  const std::string good = slurp(folder / "t.idx");
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 1 + round % 4; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    spit(folder / "t.idx", bad);
    try {
      const TokenFile file(folder / "t");
      all_tokens(file);
      file.document_starts(0, file.num_tokens());
    } catch (const IoError&) {
    }
  }
}

TEST(TokenFile, SaysSoWhenItIsCutWhileOpen) {
  const TempFolder folder;
  const auto error_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const IoError& error) {
      return error.what();
    }
    return "no IoError";
  };
  write_documents(folder / "t", DType::u16, {std::vector<int32_t>(100'000, 7), {1}});
  const TokenFile file(folder / "t");
  EXPECT_EQ(all_tokens(file).size(), 100'001u);
  std::filesystem::resize_file(folder / "t.bin", 4);
  std::vector<int32_t> ids(2);
  file.read(0, ids, kAnyVocab);
  EXPECT_THAT(error_of([&] { file.read(1, ids, kAnyVocab); }),
              HasSubstr("the file, which had 200002 bytes, was cut while in use"));
  EXPECT_THAT(error_of([&] { file.read(90'000, ids, kAnyVocab); }), HasSubstr("t.bin"));
  std::filesystem::resize_file(folder / "t.idx", 40);
  EXPECT_THAT(error_of([&] { file.document_start(1); }), HasSubstr("t.idx"));
  EXPECT_THAT(error_of([&] { file.document_starts(0, 5); }), HasSubstr("was cut while in use"));
}

TEST(TokenFileWriter, RefusesIdsThatDoNotFitAndLeavesNothing) {
  const TempFolder folder;
  {
    TokenFileWriter writer(folder / "t", DType::u8);
    EXPECT_THROW(writer.append(std::vector<int32_t>{256}), ConfigError);
    EXPECT_THROW(writer.append(std::vector<int32_t>{-1}), ConfigError);
  }
  EXPECT_THAT(list_folder(folder.path()), ElementsAre());
  EXPECT_THROW(TokenFileWriter(folder / "t", DType::f32), ConfigError);
}

TEST(TokenFileWriter, CutsLongDocumentsIntoSequences) {
  const TempFolder folder;
  {
    TokenFileWriter writer(folder / "t", DType::u16, 3);
    writer.append(std::vector<int32_t>{1, 2});
    writer.append(std::vector<int32_t>{3, 4, 5, 6, 7});
    writer.end_document();
    writer.end_document();  // an empty one
    writer.append(std::vector<int32_t>{8, 9, 10});
    writer.end_document();
    writer.finish();
  }
  EXPECT_EQ(slurp(folder / "t.idx"), std::string("MMIDIDX\0\0", 9) + raw<uint64_t>({1}) + raw<uint8_t>({8}) +
                                         raw<uint64_t>({5, 4}) + raw<int32_t>({3, 3, 1, 0, 3}) +
                                         raw<int64_t>({0, 6, 12, 14, 14}) + raw<int64_t>({0, 3, 4, 5}));
  const TokenFile file(folder / "t");
  EXPECT_THAT(all_tokens(file), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(file.document_start(1), 7);
  EXPECT_EQ(file.document_start(2), 7);
  EXPECT_EQ(file.document_start(3), 10);
}

}  // namespace
}  // namespace moesaic
