#include "bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/rng.h"
#include "base/units.h"
#include "config/counts.h"
#include "launch/launch.h"
#include "ops/matmul/matmul.h"
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

/// Median seconds of `work`, all ranks starting each repeat together.
template <class F>
double time_together(Rank& rank, int repeats, const F& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    rank.control.barrier();
    const double begin = now();
    work();
    seconds.push_back(now() - begin);
  }
  return median(seconds);
}

/// Copy rate and matmul rate of this rank while all ranks do the same.
Ceilings measure(Rank& rank) {
  constexpr int64_t kBytes = 64 << 20, M = 1024, N = 512, K = 512;
  Arena& arena = rank.device->arena();
  std::byte *from = arena.allocate(Purpose::buffers, "bench from", kBytes),
            *to = arena.allocate(Purpose::buffers, "bench to", kBytes);
  std::memset(from, 1, kBytes);
  Ceilings c;
  c.copy_bytes_per_s = 2.0 * kBytes / time_together(rank, 7, [&] { std::memcpy(to, from, kBytes); });
  Program g("bench matmul", rank.device->kind());
  const Slot slot = g.slot("tensors");
  const Handle a = g.external(slot, 0, "a", DType::f32, {M, K}),
               b = g.external(slot, 4 * M * K, "b", DType::f32, {N, K}),
               y = g.external(slot, 4 * (M + N) * K, "y", DType::f32, {M, N});
  ops::matmul(g, Stream::compute, {.a = a, .b = b, .c = y, .trans_b = true});
  const Plan plan(std::move(g));
  float* values = reinterpret_cast<float*>(to);
  for (int64_t i = 0; i < (M + N) * K; ++i) values[i] = random_normal(1, 1, static_cast<uint64_t>(i));
  rank.device->replay(plan, {nullptr, to});
  c.matmul_operations_per_s = 2.0 * M * N * K / time_together(rank, 15, [&] {
                                rank.device->replay(plan, {nullptr, to});
                                rank.device->synchronize();
                              });
  arena.release(Purpose::buffers);
  return c;
}

double floor_of(const Node& node, const Ceilings& c) {
  const double by_bytes = node.cost.bytes / c.copy_bytes_per_s;
  const bool product = node.cost.work == Work::matmul || node.cost.work == Work::grouped_matmul ||
                       node.cost.work == Work::attention;
  return product ? std::max(by_bytes, node.cost.operations / c.matmul_operations_per_s) : by_bytes;
}

struct Kind {
  int64_t calls = 0;
  double seconds = 0, floor = 0;
};

/// "all_gather" for "all_gather routing": collectives are shown by what they are.
std::string kind_of(const Node& node) {
  return node.cost.work == Work::comm ? node.name.substr(0, node.name.find(' ')) : node.name;
}

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

}  // namespace

Ceilings measure_ceilings(const Config& config) {
  Ceilings ceilings;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    const Ceilings mine = measure(rank);
    if (rank.rank == 0) ceilings = mine;
  });
  return ceilings;
}

std::string bench_step(const Config& config, int64_t steps, bool json) {
  constexpr int64_t kWarmUp = 5;
  check_runnable(config);
  const Ceilings ceilings = measure_ceilings(config);
  std::vector<double> seconds;
  std::map<std::string, Kind> kinds;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    Session session(config, rank);
    session.initialize();
    const BatchSource source = [&](std::span<const int64_t> positions) {
      return random_batch(positions, config.train.seq_len, config.model.vocab);
    };
    for (int64_t i = 0; i < kWarmUp + steps; ++i) {
      if (i == kWarmUp && rank.rank == 0)
        rank.device->set_trace([&](const OpEvent& e) {
          Kind& kind = kinds[kind_of(*e.node)];
          ++kind.calls, kind.seconds += e.end - e.start, kind.floor += floor_of(*e.node, ceilings);
        });
      const double begin = now();
      StepResult result = session.step(source, i * config.train.global_batch, 1e-4);
      if (result.max_rows_asked > 0 && config.layout.on_overflow != OverflowPolicy::drop) {
        session.grow_rows(result.max_rows_asked);
        continue;
      }
      if (i >= kWarmUp && rank.rank == 0) seconds.push_back(now() - begin);
    }
  });
  const double step = median(seconds),
               tokens = static_cast<double>(config.train.global_batch * config.train.seq_len);
  double floor = 0, timed = 0;
  for (const auto& [name, kind] : kinds) floor += kind.floor, timed += kind.seconds;
  floor /= static_cast<double>(steps), timed /= static_cast<double>(steps);
  const double flops = tokens * flops_per_token(config.model, config.train.seq_len) / step;
  if (json) {
    nlohmann::json all{{"tokens_per_s", tokens / step},
                       {"step_s", step},
                       {"floor_s", floor},
                       {"copy_bytes_per_s", ceilings.copy_bytes_per_s},
                       {"matmul_operations_per_s", ceilings.matmul_operations_per_s},
                       {"flops_per_s", flops}};
    for (const auto& [name, kind] : kinds)
      all["ops"][name] = {{"calls", kind.calls / steps},
                          {"seconds", kind.seconds / static_cast<double>(steps)},
                          {"floor_s", kind.floor / static_cast<double>(steps)}};
    return all.dump(1) + "\n";
  }
  std::string text = fmt::format(
      "ceilings of a rank, all ranks busy: copy {:.1f} GB/s read + written, matmul {:.1f} GFLOP/s (1024 x "
      "512 x 512)\n"
      "step {} (median of {}): {:.0f} tokens/s, {:.1f} GFLOP/s by the model's count, {:.1f} % of the floor "
      "of rank 0 ({})\n\n",
      ceilings.copy_bytes_per_s / 1e9, ceilings.matmul_operations_per_s / 1e9, format_seconds(step),
      seconds.size(), tokens / step, flops / 1e9, 100 * floor / step, format_seconds(floor));
  Table table({{"op (rank 0)"},
               {"calls", Table::Align::right},
               {"time", Table::Align::right},
               {"of step", Table::Align::right},
               {"floor", Table::Align::right},
               {"of floor", Table::Align::right}});
  std::vector<std::pair<std::string, Kind>> sorted(kinds.begin(), kinds.end());
  std::sort(sorted.begin(), sorted.end(),
            [](auto& a, auto& b) { return a.second.seconds > b.second.seconds; });
  for (const auto& [name, kind] : sorted) {
    const auto per_step = [&](double x) { return x / static_cast<double>(steps); };
    table.add_row({name, std::to_string(kind.calls / steps), format_seconds(per_step(kind.seconds)),
                   fmt::format("{:.1f} %", 100 * per_step(kind.seconds) / step),
                   format_seconds(per_step(kind.floor)),
                   fmt::format("{:.0f} %", 100 * kind.floor / kind.seconds)});
  }
  table.add_rule();
  table.add_row({"between ops", "", format_seconds(std::max(0.0, step - timed)),
                 fmt::format("{:.1f} %", 100 * std::max(0.0, step - timed) / step), "", ""});
  return text + table.str();
}

}  // namespace moesaic
