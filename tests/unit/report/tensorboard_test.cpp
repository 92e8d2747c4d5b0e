#include "report/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

// The records below were serialised by TensorBoard 2.21's own protobuf classes and checksum.
constexpr double kTime = 1700000000.5;
constexpr auto kVersion = "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110";
constexpr auto kSessionStart = "100000000000000095fbfe180900002040fc54d94110ac023a020801b94512a3";
constexpr auto kScalars =
    "3200000000000000241956ec0900002040fc54d94110ac022a240a110a0a6c6f73732f747261696e15000020400a0f0a08747261"
    "696e2f6c72"
    "15a69b443b68dc759c";

TEST(Crc32c, MatchesRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending, descending;
  for (char i = 0; i < 32; ++i) ascending += i, descending += static_cast<char>(31 - i);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c(descending), 0x113fdb5cu);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, RecordsEqualThoseOfTensorBoardByteForByte) {
  const std::vector<Scalar> scalars{{"loss/train", 2.5f}, {"train/lr", 0.003f}};
  EXPECT_EQ(hex(tfrecord(version_event(kTime))), kVersion);
  EXPECT_EQ(hex(tfrecord(session_start_event(kTime, 300))), kSessionStart);
  EXPECT_EQ(hex(tfrecord(scalars_event(kTime, 300, scalars))), kScalars);
}

TEST(TensorBoard, NumbersTakeAsManySevenBitGroupsAsTheyNeed) {
  const auto step_bytes = [](int64_t step) { return hex(scalars_event(0, step, {})).substr(18); };
  EXPECT_EQ(step_bytes(0), "2a00");  // zero is left out; then the empty summary
  EXPECT_EQ(step_bytes(127), "107f2a00");
  EXPECT_EQ(step_bytes(128), "1080012a00");
  EXPECT_EQ(step_bytes(int64_t{1} << 40), "108080808080202a00");
}

// Message lengths of a file whose framing holds.
std::vector<uint64_t> message_sizes(const std::string& file) {
  std::vector<uint64_t> sizes;
  for (size_t at = 0; at < file.size();) {
    uint64_t size = 0;
    for (size_t i = 0; i < 8; ++i) size |= uint64_t{static_cast<uint8_t>(file[at + i])} << (8 * i);
    EXPECT_EQ(file.substr(at, size + 16), tfrecord(file.substr(at + 12, size)));
    sizes.push_back(size);
    at += size + 16;
  }
  return sizes;
}

TEST(TensorBoard, AFileHoldsTheVersionThenTheStepsAndAResumedOneASessionStart) {
  const TempFolder folder;
  TensorBoardWriter fresh(folder / "tb", 0);
  fresh.write(0, std::vector<Scalar>{{"a", std::numeric_limits<float>::quiet_NaN()}});
  EXPECT_THAT(message_sizes(slurp(fresh.path())), testing::ElementsAre(24, 21));
  EXPECT_THAT(fresh.path(), testing::HasSubstr("/tb/"
                                               "events.out.tfevents."));
  const TensorBoardWriter resumed(folder / "tb", 300);
  EXPECT_THAT(message_sizes(slurp(resumed.path())), testing::ElementsAre(24, 16));
  EXPECT_LT(fresh.path(), resumed.path());  // TensorBoard reads in the order of names
}

TEST(TensorBoard, AFolderThatCannotBeMadeIsAnIoError) {
  const TempFolder folder;
  spit(folder / "file", "");
  EXPECT_THROW(TensorBoardWriter(folder / "file", 0), IoError);
}

TEST(TensorBoard, StepScalarsAreGroupedAndSummed) {
  StepMetrics m;
  m.loss = 2;
  m.val_loss = 1.5;
  m.skipped = true;
  m.expert_load = {{3, 1}};
  m.dropped = {2, 5};
  m.memory_bytes = {{"parameters", 64}};
  const auto value_of = [scalars = scalars_of(m)](const std::string& tag) {
    for (const Scalar& s : scalars)
      if (s.tag == tag) return s.value;
    return -1.0f;
  };
  EXPECT_EQ(value_of("loss/train"), 2);
  EXPECT_EQ(value_of("loss/validation"), 1.5);
  EXPECT_EQ(value_of("train/skipped"), 1);
  EXPECT_EQ(value_of("experts/balance"), 1.5);
  EXPECT_EQ(value_of("experts/dropped"), 7);
  EXPECT_EQ(value_of("memory/parameters"), 64);
  EXPECT_EQ(value_of("train/mfu"), -1);
}

}  // namespace
}  // namespace moesaic
