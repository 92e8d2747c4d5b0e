#include "bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/units.h"
#include "bench/ceilings.h"
#include "bench/gpu_ceilings.h"
#include "bench/measure.h"
#include "bench/overlap.h"
#include "config/counts.h"
#include "device/cuda_memory_info.h"
#include "launch/launch.h"
#include "report/table.h"
#include "train/run_checks.h"
#include "train/session.h"

namespace moesaic {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Kind {
  int64_t calls = 0;
  double seconds = 0, floor = 0;
  std::vector<Cost> costs;  // of each call
};

constexpr int kTraced = 3;              // steps whose ops are timed
constexpr double kLearningRate = 1e-7;  // routing stays what the first weights make of random tokens

/// The line that a node counts for. Collectives are shown by what they are: "all_gather" for "all_gather routing".
std::string line_of(const Node& node, BenchBy by) {
  if (by == BenchBy::segment) return node.segment.empty() ? "other" : node.segment;
  const Cost& c = node.cost;
  std::string op = c.work == Work::comm ? node.name.substr(0, node.name.find(' ')) : node.name;
  if (by == BenchBy::op) return op;
  if (c.is_product()) return fmt::format("{} {} x {} x {}{}", op, c.m, c.n, c.k, c.adds ? " +=" : "");
  return fmt::format("{} {}", op, format_bytes(static_cast<int64_t>(c.bytes)));
}

/// "1 MiB": the working sets are powers of two.
std::string whole_bytes(int64_t bytes) {
  return bytes < 1 << 20 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

std::string describe(const Ceilings& c, bool gpu) {
  if (gpu)
    return fmt::format(
        "ceilings of a GPU, all GPUs busy: copy {:.2f} TB/s read + written, BF16 product of 8192^3 {:.0f} "
        "TFLOP/s\n",
        c.copy.front().bytes_per_s / 1e12, c.matmul_operations_per_s / 1e12);
  std::string text = "ceilings of a rank, all ranks busy: copy, read + written,";
  for (const CopyRate& rate : c.copy)
    text += fmt::format("{} {:.1f} GB/s in {}", &rate == &c.copy.front() ? "" : ",", rate.bytes_per_s / 1e9,
                        whole_bytes(rate.bytes));
  return text + fmt::format(" a thread; matmul {:.1f} GFLOP/s (256 x 512 x 512 a thread)\n",
                            c.matmul_operations_per_s / 1e9);
}

/// A step's numbers, before they are made into text.
struct Measured {
  std::vector<double> seconds;        // of the steps that were not traced
  std::map<std::string, Kind> kinds;  // of rank 0, over the traced steps
  std::vector<Overlap> overlaps;      // of each rank, all traced steps together
  int64_t memory_bytes = 0;           // of rank 0, at most
  int64_t driver_before = 0,
          driver_after = 0;  // what its GPU's driver says is taken: before the session, after the steps
  double load = 0;           // most rows of an expert over the mean, worst layer, last step
};

std::string bytes_of(const Overlap& overlap) {
  return {reinterpret_cast<const char*>(&overlap), sizeof overlap};
}
Overlap overlap_from(const std::string& bytes) {
  Overlap overlap;
  MOESAIC_CHECK(bytes.size() == sizeof overlap);
  std::memcpy(&overlap, bytes.data(), sizeof overlap);
  return overlap;
}

double worst_load(const StepResult& result) {
  double worst = 0;
  for (const auto& layer : result.expert_load) {
    double sum = 0, most = 0;
    for (const int64_t rows : layer)
      sum += static_cast<double>(rows), most = std::max(most, static_cast<double>(rows));
    if (sum > 0) worst = std::max(worst, most * static_cast<double>(layer.size()) / sum);
  }
  return worst;
}

/// Steps to warm up, steps to time, then steps to trace, since reading the clock at every op takes time.
Measured measure(const Config& config, BenchBy by, int64_t steps) {
  constexpr int64_t kWarmUp = 5;
  Measured measured;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    const bool gpu = config.run.device == DeviceKind::cuda;
    rank.control.barrier();  // every rank's context is there
    const int64_t before = gpu ? gpu_memory_in_use() : 0;
    rank.control.barrier();
    Session session(config, rank);
    session.initialize();
    std::map<int64_t, Batch> batches;  // the same few in turns, made before the clock runs
    const BatchSource source = [&](std::span<const int64_t> positions) {
      Batch& batch = batches[positions.front() % (2 * config.train.global_batch)];
      if (batch.tokens.empty()) batch = random_batch(positions, config.train.seq_len, config.model.vocab);
      return batch;
    };
    const auto run = [&](int64_t i) {
      StepResult result = session.step(source, i * config.train.global_batch, kLearningRate);
      if (result.max_rows_asked > 0 && config.layout.on_overflow != OverflowPolicy::drop)
        session.grow_rows(result.max_rows_asked);
      return result;
    };
    for (int64_t i = 0; i < kWarmUp; ++i) run(i);
    StepResult result;
    for (int64_t i = 0; i < steps; ++i) {
      const double begin = now();
      result = run(kWarmUp + i);
      if (rank.rank == 0) measured.seconds.push_back(now() - begin);
    }
    std::vector<Interval> intervals;
    rank.device->set_trace([&](const OpEvent& e) {
      intervals.push_back({e.start, e.end, e.node->cost.work == Work::comm});
      if (rank.rank != 0) return;
      Kind& kind = measured.kinds[line_of(*e.node, by)];
      ++kind.calls, kind.seconds += e.end - e.start;
      kind.costs.push_back(e.node->cost);
    });
    for (int64_t i = 0; i < kTraced; ++i) run(kWarmUp + steps + i);
    rank.device->set_trace({});
    if (rank.rank == 0) {
      measured.memory_bytes = rank.device->arena().high_water(), measured.load = worst_load(result);
      measured.driver_before = before, measured.driver_after = gpu ? gpu_memory_in_use() : 0;
    }
    const Overlap mine = overlap_of(intervals);
    for (const std::string& other : rank.control.all_gather(bytes_of(mine)))
      if (rank.rank == 0) measured.overlaps.push_back(overlap_from(other));
  });
  return measured;
}

Ceilings ceilings_of(const Config& config, const Measured& measured) {
  if (config.run.device != DeviceKind::cuda) return measure_ceilings(config);
  std::vector<Cost> costs;
  for (const auto& [name, kind] : measured.kinds)
    costs.insert(costs.end(), kind.costs.begin(), kind.costs.end());
  return measure_gpu_ceilings(config, costs);
}

}  // namespace

Batch random_batch(std::span<const int64_t> positions, int64_t S, int64_t vocab) {
  Batch batch;
  batch.num_sequences = static_cast<int64_t>(positions.size());
  for (int64_t p : positions)
    for (int64_t s = 0; s < S; ++s) {
      const auto draw = [&](uint64_t seed) {
        return static_cast<int32_t>(random_below(static_cast<uint64_t>(vocab), seed, static_cast<uint64_t>(p),
                                                 static_cast<uint64_t>(s)));
      };
      batch.tokens.push_back(draw(1));
      batch.targets.push_back(draw(2));
      batch.positions.push_back(static_cast<int32_t>(s));
      batch.doc_start.push_back(0);
    }
  batch.num_counted = batch.num_sequences * S;
  return batch;
}

double median_step_seconds(const Config& config, int64_t steps) {
  const Measured measured = measure(config, BenchBy::op, steps);
  return measured.seconds.empty() ? 0 : median(measured.seconds);
}

std::string bench_step(const Config& config, BenchBy by, int64_t steps, bool json) {
  check_runnable(config);
  Measured measured = measure(config, by, steps);
  const Ceilings ceilings = ceilings_of(config, measured);
  if (measured.seconds.empty()) return {};  // rank 0 is another process's
  const bool gpu = config.run.device == DeviceKind::cuda;
  auto& kinds = measured.kinds;
  const double step = median(measured.seconds),
               tokens = static_cast<double>(config.train.global_batch * config.train.seq_len);
  double floor = 0;
  const double idle = (measured.overlaps.front().span - measured.overlaps.front().busy) / kTraced;
  for (auto& [name, kind] : kinds) {
    for (const Cost& cost : kind.costs) kind.floor += floor_seconds(cost, ceilings);
    floor += kind.floor / kTraced;
  }
  const double flops = tokens * flops_per_token(config.model, config.train.seq_len) / step;
  const auto peak = peak_flops(config.run.device);
  const double mfu = peak ? flops / (*peak * static_cast<double>(Mesh(config.layout).world_size())) : 0;
  if (json) {
    nlohmann::json all{{"tokens_per_s", tokens / step},
                       {"step_s", step},
                       {"floor_s", floor},
                       {"matmul_operations_per_s", ceilings.matmul_operations_per_s},
                       {"flops_per_s", flops},
                       {"mfu", mfu},
                       {"memory_bytes", measured.memory_bytes},
                       {"driver_bytes_before", measured.driver_before},
                       {"driver_bytes_after", measured.driver_after},
                       {"expert_max_over_mean", measured.load},
                       {"seconds", measured.seconds}};
    for (const Overlap& o : measured.overlaps)
      all["ranks"].push_back({{"comm_s", o.comm / kTraced},
                              {"exposed_comm_s", o.exposed / kTraced},
                              {"busy_s", o.busy / kTraced},
                              {"idle_s", (o.span - o.busy) / kTraced}});
    for (const ProductRate& p : ceilings.products)
      all["products"].push_back({{"work", p.work == Work::attention ? "attention" : "product"},
                                 {"m", p.m},
                                 {"n", p.n},
                                 {"k", p.k},
                                 {"adds", p.adds},
                                 {"operations_per_s", p.operations_per_s}});
    for (const CopyRate& rate : ceilings.copy)
      all["copy"].push_back({{"bytes", rate.bytes}, {"bytes_per_s", rate.bytes_per_s}});
    for (const auto& [name, kind] : kinds)
      all["ops"][name] = {{"calls", kind.calls / kTraced},
                          {"seconds", kind.seconds / kTraced},
                          {"floor_s", kind.floor / kTraced}};
    return all.dump(1) + "\n";
  }
  std::string text = describe(ceilings, gpu);
  text += fmt::format(
      "step {} (median of {}): {:.0f} tokens/s, {:.1f} GFLOP/s by the model's count, {:.1f} % of the floor "
      "of rank 0 ({})\n",
      format_seconds(step), measured.seconds.size(), tokens / step, flops / 1e9, 100 * floor / step,
      format_seconds(floor));
  if (peak) text += fmt::format("MFU {:.1f} % of {:.0f} TFLOP/s a GPU; ", 100 * mfu, *peak / 1e12);
  text += fmt::format("memory {} a rank; most loaded expert {:.2f} times the mean\n",
                      format_bytes(measured.memory_bytes), measured.load);
  if (gpu)
    text += fmt::format(
        "the driver says {} of rank 0's GPU are taken: {} before the session (contexts), {} by libraries\n",
        format_bytes(measured.driver_after), format_bytes(measured.driver_before),
        format_bytes(measured.driver_after - measured.driver_before - measured.memory_bytes));
  text += "\n";
  Table table({{by == BenchBy::segment ? "part (rank 0)" : "op (rank 0)"},
               {"calls", Table::Align::right},
               {"time", Table::Align::right},
               {"of step", Table::Align::right},
               {"floor", Table::Align::right},
               {"of floor", Table::Align::right}});
  std::vector<std::pair<std::string, Kind>> sorted(kinds.begin(), kinds.end());
  std::sort(sorted.begin(), sorted.end(),
            [](auto& a, auto& b) { return a.second.seconds > b.second.seconds; });
  for (const auto& [name, kind] : sorted) {
    const auto per_step = [](double x) { return x / kTraced; };
    table.add_row({name, std::to_string(kind.calls / kTraced), format_seconds(per_step(kind.seconds)),
                   fmt::format("{:.1f} %", 100 * per_step(kind.seconds) / step),
                   format_seconds(per_step(kind.floor)),
                   fmt::format("{:.0f} %", 100 * kind.floor / kind.seconds)});
  }
  table.add_rule();
  if (const Overlap& o = measured.overlaps.front(); o.comm > 0) {
    table.add_row({"communication, exposed", "", format_seconds(o.exposed / kTraced),
                   fmt::format("{:.1f} %", 100 * o.exposed / kTraced / step), "",
                   fmt::format("{:.0f} % hidden", 100 * (1 - o.exposed / o.comm))});
  }
  table.add_row(
      {"between ops", "", format_seconds(idle), fmt::format("{:.1f} %", 100 * idle / step), "", ""});
  return text + table.str();
}

}  // namespace moesaic
