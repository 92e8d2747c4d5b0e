#include "train/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "bench/bench.h"
#include "launch/launch.h"
#include "support/layout_runner.h"
#include "support/temp_folder.h"
#include "support/thrown.h"
#include "train/session.h"

namespace moesaic::test {
namespace {

using testing::HasSubstr;

Config two_ranks() {
  Config c = small_config();
  c.layout.n = 2;
  c.run.device = DeviceKind::cpu;
  return c;
}

Tuning tuning_for(const Config& c, double a2a, double ag_rs) {
  return {.library = "cpu",
          .products = {{"8 x 8 x 8 bf16 to f32", "00ff", 1e-6, 2e-6}},
          .dispatch = {{"another layer", 2, 1}, {dispatch_key(c), a2a, ag_rs}}};
}

std::vector<Dispatch> resolved(const Config& c) {
  std::vector<Dispatch> found(2);
  run_ranks(c.run, 2, [&](Rank& rank) {
    found[static_cast<size_t>(rank.rank)] = Session(c, rank).stage().spec().layout.dispatch;
  });
  return found;
}

TEST(Tuning, IsReadAsItWasWritten) {
  const TempFolder folder;
  const std::string path = folder.path() + "/tuning.json";
  write_tuning(path, tuning_for(two_ranks(), 1, 2));
  const Tuning read = read_tuning(path);
  EXPECT_EQ(read.library, "cpu");
  ASSERT_EQ(read.products.size(), 1u);
  EXPECT_EQ(read.products[0].product, "8 x 8 x 8 bf16 to f32");
  EXPECT_EQ(read.products[0].algorithm, "00ff");
  EXPECT_EQ(read.products[0].first_seconds, 2e-6);
  ASSERT_EQ(read.dispatch.size(), 2u);
  EXPECT_EQ(read.dispatch[1].faster(), Dispatch::a2a);
}

TEST(Tuning, DecidesWhatAutomaticDispatchMeansOnEveryRank) {
  const TempFolder folder;
  Config c = two_ranks();
  c.run.tuning = folder.path() + "/tuning.json";
  for (const auto& [a2a, ag_rs, expected] :
       {std::tuple(1.0, 2.0, Dispatch::a2a), std::tuple(2.0, 1.0, Dispatch::ag_rs)}) {
    write_tuning(c.run.tuning, tuning_for(c, a2a, ag_rs));
    EXPECT_THAT(resolved(c), testing::Each(expected));
  }
  c.layout.dispatch = Dispatch::a2a;  // what the user says beats the file
  EXPECT_THAT(resolved(c), testing::Each(Dispatch::a2a));
}

TEST(Tuning, RefusesAFileOfAnotherGpuOrOneThatMakesNoSense) {
  const TempFolder folder;
  Config c = two_ranks();
  c.run.tuning = folder.path() + "/tuning.json";
  Tuning other = tuning_for(c, 1, 2);
  other.library = "NVIDIA H200, cuBLASLt 130100";
  write_tuning(c.run.tuning, other);
  EXPECT_THAT(message_of<ConfigError>([&] { resolved(c); }), HasSubstr("was made for NVIDIA H200"));
  const auto write = [&](const std::string& text) {
    AtomicFile file(c.run.tuning);
    file.write(text);
    file.commit();
  };
  for (const char* text :
       {"", "[]", "{\"version\": 2, \"library\": \"cpu\", \"products\": [], \"dispatch\": []}",
        "{\"version\": 1, \"library\": \"cpu\", \"products\": [], \"dispatch\": [{\"layer\": "
        "\"x\", \"a2a_seconds\": -1, \"ag_rs_seconds\": 1}]}"}) {
    write(text);
    EXPECT_THROW(read_tuning(c.run.tuning), IoError) << text;
  }
}

}  // namespace
}  // namespace moesaic::test
