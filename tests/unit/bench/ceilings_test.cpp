#include "bench/ceilings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/bench.h"
#include "support/layout_runner.h"

namespace moesaic {
namespace {

constexpr double kKiB = 1024, kMiB = 1024 * kKiB;

Ceilings ceilings() {
  Ceilings c;
  c.copy = {{256 << 10, 100e9}, {1 << 20, 80e9}, {64 << 20, 10e9}};
  c.matmul_operations_per_s = 50e9;
  return c;
}

double seconds(double bytes, const Ceilings& c, Work work = Work::memory, double operations = 0) {
  return floor_seconds({.work = work, .operations = operations, .bytes = bytes}, c);
}

TEST(Floor, ChargesAnOpTheCopyRateOfItsOwnBytes) {
  const Ceilings c = ceilings();
  EXPECT_DOUBLE_EQ(seconds(8 * kKiB, c), 8 * kKiB / 100e9);
  EXPECT_DOUBLE_EQ(seconds(512 * kKiB, c), 512 * kKiB / 100e9);
  EXPECT_DOUBLE_EQ(seconds(1 * kMiB, c), 1 * kMiB / 80e9);
  EXPECT_DOUBLE_EQ(seconds(63 * kMiB, c), 63 * kMiB / 80e9);
  EXPECT_DOUBLE_EQ(seconds(1000 * kMiB, c), 1000 * kMiB / 10e9);
}

TEST(Floor, TheThreadsOfARankShareAnOpsBytes) {
  Ceilings c = ceilings();
  c.num_threads = 2;
  EXPECT_DOUBLE_EQ(seconds(1.5 * kMiB, c), 1.5 * kMiB / 100e9);
  EXPECT_DOUBLE_EQ(seconds(2 * kMiB, c), 2 * kMiB / 80e9);
  EXPECT_DOUBLE_EQ(seconds(128 * kMiB, c), 128 * kMiB / 10e9);
}

TEST(Floor, ASmallSetIsNeverSlowerThanALargerOne) {
  Ceilings c = ceilings();
  c.copy.front().bytes_per_s = 20e9;  // disturbed while it was measured
  EXPECT_DOUBLE_EQ(seconds(8 * kKiB, c), 8 * kKiB / 80e9);
}

TEST(Floor, AProductTakesTheLongerOfItsOperationsAndItsBytes) {
  const Ceilings c = ceilings();
  for (const Work work : {Work::matmul, Work::grouped_matmul, Work::attention}) {
    EXPECT_DOUBLE_EQ(seconds(8 * kKiB, c, work, 50e6), 1e-3);
    EXPECT_DOUBLE_EQ(seconds(1000 * kMiB, c, work, 50e6), 1000 * kMiB / 10e9);
  }
  EXPECT_DOUBLE_EQ(seconds(8 * kKiB, c, Work::memory, 50e6), 8 * kKiB / 100e9);
}

Config small_config() {
  Config config = test::small_config();
  config.run.device = DeviceKind::cpu;
  return config;
}

TEST(Ceilings, AreMeasuredFromCachesToMemory) {
  Config config = small_config();
  config.layout.n = 2;
  const Ceilings c = measure_ceilings(config);
  std::vector<int64_t> sets;
  for (const CopyRate& rate : c.copy) {
    sets.push_back(rate.bytes);
    EXPECT_GT(rate.bytes_per_s, 0);
  }
  EXPECT_THAT(sets, testing::ElementsAre(256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20));
  EXPECT_GT(c.matmul_operations_per_s, 0);
  EXPECT_EQ(c.num_threads, 1);
}

TEST(Ceilings, AreNotMeasuredOnAnotherDevice) {
  Config config = small_config();
  config.run.device = DeviceKind::cuda;
  EXPECT_THROW(measure_ceilings(config), ConfigError);
}

TEST(BenchStep, ReportsTheRatesThatItsFloorsAreMadeOf) {
  Config config = small_config();
  config.layout.rows_factor = 8;
  const auto report = nlohmann::json::parse(bench_step(config, BenchBy::op, 1, true));
  ASSERT_EQ(report["copy"].size(), 5u);
  EXPECT_EQ(report["copy"][0]["bytes"], 256 << 10);
  EXPECT_GT(report["copy"][4]["bytes_per_s"], 0);
  EXPECT_GT(report["floor_s"], 0);
  const std::string text = bench_step(config, BenchBy::op, 1, false);
  for (const char* set : {"256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB"})
    EXPECT_THAT(text, testing::HasSubstr(set));
}

TEST(BenchStep, GroupsTheSameTimeByShapeOrByPart) {
  Config config = small_config();
  config.layout.n = 2;
  config.layout.rows_factor = 8;
  const auto ops = nlohmann::json::parse(bench_step(config, BenchBy::shape, 1, true))["ops"];
  EXPECT_TRUE(std::any_of(ops.items().begin(), ops.items().end(), [](const auto& line) {
    return line.key().starts_with("grouped_matmul ") && line.key().find(" x ") != std::string::npos;
  }));
  const auto parts = nlohmann::json::parse(bench_step(config, BenchBy::segment, 1, true))["ops"];
  for (const char* part : {"attention", "dispatch", "experts", "combine", "experts backward", "optimizer"})
    EXPECT_TRUE(parts.contains(part)) << part;
}

TEST(BenchComm, MeasuresEachCollectiveAndNeedsTwoRanks) {
  Config config = small_config();
  config.layout.n = 2;
  const auto report = nlohmann::json::parse(bench_comm(config, 256 << 10, true));
  EXPECT_EQ(report["ranks"], 2);
  std::set<std::string> names;
  for (const auto& line : report["collectives"]) {
    names.insert(line["collective"]);
    EXPECT_TRUE(line["received_bytes"] == 64 << 10 || line["received_bytes"] == 256 << 10);
    EXPECT_GT(line["bytes_per_s"], 0);
  }
  EXPECT_EQ(names.size(), 4u);
  EXPECT_EQ(report["collectives"].size(), 8u);
  config.layout.n = 1;
  EXPECT_THROW(bench_comm(config, 256 << 10, true), ConfigError);
}

}  // namespace
}  // namespace moesaic
