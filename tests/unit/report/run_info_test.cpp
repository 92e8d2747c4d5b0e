#include "report/run_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(RunInfo, ReadsBackWhatItWrote) {
  const TempFolder folder;
  RunInfo info;
  info.model = "tiny \"x\"";
  info.parameters = 3'400'000, info.active_parameters = 1'000'000;
  info.flops_per_token = 1.5e9, info.peak_flops = 989e12;
  info.tokens_per_step = 1024, info.ranks = 2, info.e = 2, info.dispatch = "a2a";
  info.memory = {{{"parameters", 4096}, {"activations", 5'000'000'000}},
                 {{"parameters", 1}, {"activations", 0}}};
  write_run_info(folder / "run.json", info);
  const RunInfo back = read_run_info(folder / "run.json");
  EXPECT_EQ(back.model, info.model);
  EXPECT_EQ(back.parameters, info.parameters);
  EXPECT_EQ(back.active_parameters, info.active_parameters);
  EXPECT_EQ(back.flops_per_token, info.flops_per_token);
  EXPECT_EQ(back.peak_flops, info.peak_flops);
  EXPECT_EQ(back.tokens_per_step, info.tokens_per_step);
  EXPECT_EQ(back.ranks, info.ranks);
  EXPECT_EQ(back.e, info.e);
  EXPECT_EQ(back.dispatch, info.dispatch);
  EXPECT_EQ(back.memory, info.memory);
}

TEST(RunInfo, WithoutMemoryOrPeakIsValidToo) {
  const TempFolder folder;
  write_run_info(folder / "run.json", {});
  EXPECT_TRUE(read_run_info(folder / "run.json").memory.empty());
  EXPECT_FALSE(read_run_info(folder / "run.json").peak_flops);
}

TEST(RunInfo, DamageIsAnIoErrorThatNamesTheFile) {
  const TempFolder folder;
  const auto path = folder / "run.json";
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string(R"({"parameters":"many"})"),
        std::string(R"({"ranks":1.5e300})"), std::string(R"({"memory_bytes":[{"a":"b"}]})"),
        std::string(R"({"memory_bytes":7})"), std::string(100000, '[')}) {
    spit(path, bad);
    EXPECT_THAT([&] { read_run_info(path); }, ThrowsMessage<IoError>(HasSubstr("run.json")))
        << bad.substr(0, 40);
  }
}

}  // namespace
}  // namespace moesaic
