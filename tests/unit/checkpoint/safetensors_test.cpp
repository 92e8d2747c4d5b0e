#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "support/temp_folder.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

std::string open_error(const std::string& path, const std::string& bytes) {
  spit(path, bytes);
  try {
    SafetensorsFile file(path);
  } catch (const IoError& error) {
    return error.what();
  }
  return "no IoError";
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Safetensors, GivesBackEveryType) {
  const TempFolder folder;
  std::vector<StoredTensor> tensors;
  for (const DType type : {DType::u8, DType::bf16, DType::f32, DType::u16, DType::i64, DType::i32}) {
    tensors.push_back({"t." + std::string(name_of(type)), type, {3, 1}});
  }
  tensors.push_back({"scalar", DType::f32, {}});
  tensors.push_back({"empty", DType::f32, {0, 7}});
  SafetensorsWriter writer(folder / "a", tensors, {{"format", "pt"}});
  std::vector<std::string> data;
  for (const StoredTensor& tensor : writer.tensors()) {
    data.emplace_back(static_cast<size_t>(tensor.bytes), static_cast<char>('a' + data.size()));
  }
  for (const size_t i : writer.order()) {
    writer.append(bytes_of(data[i]).first(data[i].size() / 2));
    writer.append(bytes_of(data[i]).subspan(data[i].size() / 2));
  }
  EXPECT_FALSE(path_exists(folder / "a"));
  writer.finish();

  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& tensor = file.get(tensors[i].name);
    EXPECT_EQ(tensor.dtype, tensors[i].dtype);
    EXPECT_EQ(tensor.shape, tensors[i].shape);
    EXPECT_EQ(tensor.offset % size_of(tensor.dtype), 0) << tensor.name;
    EXPECT_EQ(tensor.offset, writer.tensors()[i].offset);
    EXPECT_EQ(text_of(file.data(tensor)), data[i]);
  }
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_THROW(file.get("none"), IoError);
}

TEST(Safetensors, ReadsTheFormatAsOthersWriteIt) {
  const TempFolder folder;
  spit(folder / "a",
       file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
               R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}   )",
               "01234567abcd"));
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(text_of(file.data(file.get("b"))), "abcd");
}

TEST(Safetensors, TakesAFileWithoutTensors) {
  const TempFolder folder;
  SafetensorsWriter(folder / "a", {}).finish();
  EXPECT_TRUE(SafetensorsFile(folder / "a").tensors().empty());
}

TEST(SafetensorsWriter, RefusesANameTwiceAndHugeShapes) {
  const TempFolder folder;
  EXPECT_THROW(SafetensorsWriter(folder / "a", {{"x", DType::f32, {1}}, {"x", DType::f32, {1}}}), IoError);
  EXPECT_THROW(SafetensorsWriter(folder / "a", {{"__metadata__", DType::f32, {1}}}), IoError);
  EXPECT_THROW(SafetensorsWriter(folder / "a", {{"x", DType::u8, {int64_t{1} << 60}},
                                                {"y", DType::u8, {int64_t{1} << 60}},
                                                {"z", DType::f32, {int64_t{1} << 60}}}),
               IoError);
  EXPECT_THROW(SafetensorsWriter(folder / "a", {{"x", DType::u8, {int64_t{1} << 40, int64_t{1} << 40}}}),
               IoError);
  EXPECT_TRUE(list_folder(folder.path()).empty());
}

TEST(Safetensors, RefusesWhatTheHeaderMayNotSay) {
  const TempFolder folder;
  const auto error = [&](const std::string& header, const std::string& data = "01234567") {
    return open_error(folder / "a", file_of(header, data));
  };
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return error(R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
                 "}}");
  };
  ASSERT_EQ(one("\"F32\"", "[2]", "[0,8]"), "no IoError");
  EXPECT_THAT(one("\"F64\"", "[1]", "[0,8]"), HasSubstr("tensor t: type F64"));
  EXPECT_THAT(one("4", "[2]", "[0,8]"), HasSubstr("\"dtype\" must be a string"));
  EXPECT_THAT(one("\"F32\"", "[3]", "[0,8]"), HasSubstr("need 12 bytes"));
  EXPECT_THAT(one("\"F32\"", "[-2]", "[0,8]"), HasSubstr("\"shape\" must be a whole number"));
  EXPECT_THAT(one("\"F32\"", "[2.0]", "[0,8]"), HasSubstr("\"shape\" must be a whole number"));
  EXPECT_THAT(one("\"F32\"", "2", "[0,8]"), HasSubstr("\"shape\" must be an array"));
  EXPECT_THAT(one("\"F32\"", "[4294967296,4294967296]", "[0,8]"), HasSubstr("more elements than"));
  EXPECT_THAT(one("\"F32\"", "[4611686018427387906]", "[0,8]"), HasSubstr("more elements than"));
  EXPECT_THAT(one("\"F32\"", "[18446744073709551615]", "[0,8]"), HasSubstr("must be a whole number"));
  EXPECT_THAT(one("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), HasSubstr("9 dims"));
  EXPECT_THAT(one("\"F32\"", "[2]", "[0,9]"), HasSubstr("data_offsets"));
  EXPECT_THAT(one("\"F32\"", "[2]", "[8,0]"), HasSubstr("data_offsets"));
  EXPECT_THAT(one("\"F32\"", "[2]", "[0]"), HasSubstr("data_offsets"));
  EXPECT_THAT(one("\"F32\"", "[1]", "[4,8]"), HasSubstr("gaps"));
  EXPECT_THAT(one("\"F32\"", "[1]", "[0,4]"), HasSubstr("end at byte"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                    R"("t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
              HasSubstr("\"t\" occurs twice"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                    R"("u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
              HasSubstr("overlaps"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","data_offsets":[0,8]}})"), HasSubstr("\"shape\" is missing"));
  EXPECT_THAT(error(R"({"t":[]})"), HasSubstr("\"dtype\" is missing"));
  EXPECT_THAT(error("[]", ""), HasSubstr("must be a JSON object"));
  EXPECT_THAT(error("", ""), HasSubstr("damaged JSON"));
  EXPECT_THAT(error("{\"\xff\":{}}", ""), HasSubstr("damaged JSON"));
  EXPECT_THAT(error(R"({"__metadata__":{"a":1}})", ""), HasSubstr("object of strings"));
  EXPECT_THAT(error(std::string(5'000'000, '['), ""), HasSubstr("nested deeper"));
}

TEST(Safetensors, RefusesLengthsOutsideTheFile) {
  const TempFolder folder;
  const std::string good = file_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "01234567");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(open_error(folder / "a", good.substr(0, size)), "no IoError") << size;
  }
  for (const uint64_t length : {uint64_t{100}, uint64_t{100'000'000}, uint64_t{100'000'001},
                                uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string bad = good;
    std::memcpy(bad.data(), &length, 8);
    EXPECT_NE(open_error(folder / "a", bad), "no IoError") << length;
  }
}

TEST(Safetensors, NeverCrashesOnRandomDamage) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "a", {{"x", DType::f32, {2, 3}}, {"y", DType::u8, {5}}}, {{"k", "v"}});
  writer.append(bytes_of(std::string(29, 'x')));
  writer.finish();
  const std::string good = slurp(folder / "a");
  const std::string interesting = "\"{}[]:,0123456789-.eE\\ \xff";
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bad = good;
    for (int i = 0; i <= round % 5; ++i) {
      const size_t at = random() % writer.header().size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad[at] = interesting[random() % interesting.size()];
          break;
        case 2:
          bad.erase(at, 1 + random() % 4);
          break;
        default:
          bad.insert(at, 1 + random() % 3, interesting[random() % interesting.size()]);
      }
    }
    spit(folder / "b", bad);
    try {
      const SafetensorsFile file(folder / "b");
      ++accepted;
      size_t sum = 0;
      for (const StoredTensor& tensor : file.tensors()) {
        for (const std::byte b : file.data(tensor)) sum += static_cast<size_t>(b);
      }
      EXPECT_LE(sum, bad.size() * 255);
    } catch (const IoError&) {
    }
  }
  EXPECT_LT(accepted, 1000);
}

TEST(SafetensorsFile, SaysSoWhenItIsCutWhileOpen) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  SafetensorsWriter writer(path, {{.name = "w", .dtype = DType::u8, .shape = {5000}}});
  writer.append(std::vector<std::byte>(5000));
  writer.finish();
  const SafetensorsFile file(path);
  ASSERT_EQ(::truncate(path.c_str(), 1000), 0);
  EXPECT_THAT(
      message_of<IoError>([&] { file.data(file.get("w")); }),
      testing::AllOf(HasSubstr(path), HasSubstr("w needs 5000 bytes"), HasSubstr("was cut while in use")));
}

}  // namespace
}  // namespace moesaic
