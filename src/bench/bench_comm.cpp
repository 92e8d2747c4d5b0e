// What collectives reach between the ranks of a layout, alone and all ranks at once.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "bench/alone.h"
#include "bench/bench.h"
#include "comm/collectives.h"
#include "mesh/mesh.h"
#include "report/table.h"
#include "train/run_checks.h"

namespace moesaic {
namespace {

constexpr int64_t kLeast = 64 << 10;  // bytes that a rank receives from each other one

/// Records one collective that brings `bytes` from each other rank.
struct Kind {
  const char* name;
  std::function<void(Alone&, Communicator&, int64_t bytes)> record;
};

Shape elements(int64_t bytes) {
  return {bytes / 2};
}

std::vector<Kind> kinds() {
  const auto tensor = [](Alone& a, int64_t bytes) { return a.tensor(DType::bf16, elements(bytes)); };
  return {
      {"all_gather",
       [=](Alone& a, Communicator& c, int64_t bytes) {
         comm::all_gather(a.program(), Stream::comm, c, tensor(a, bytes), tensor(a, c.size() * bytes), "");
       }},
      {"reduce_scatter",
       [=](Alone& a, Communicator& c, int64_t bytes) {
         comm::reduce_scatter(a.program(), Stream::comm, c, tensor(a, c.size() * bytes), tensor(a, bytes),
                              "");
       }},
      {"exchange_parts",
       [=](Alone& a, Communicator& c, int64_t bytes) {
         comm::exchange_parts(a.program(), Stream::comm, c, tensor(a, c.size() * bytes),
                              tensor(a, (c.size() - 1) * bytes), "");
       }},
      {"all_to_all (heads)",
       [=](Alone& a, Communicator& c, int64_t bytes) {
         // As the exchange of heads: [rows, size, width] -> [size rows, width].
         const int64_t width = 1024, rows = bytes / width;
         BlockCopy copy{.rows = rows, .width = width};
         for (int64_t p = 0; p < c.size(); ++p) {
           copy.send_offset.push_back(p * width);
           copy.recv_offset.push_back(p * rows * width);
         }
         copy.send_pitch = c.size() * width, copy.recv_pitch = width;
         comm::all_to_all_blocks(a.program(), Stream::comm, c, tensor(a, c.size() * bytes),
                                 tensor(a, c.size() * bytes), {copy}, "");
       }},
  };
}

struct Measurement {
  std::string name;
  int64_t bytes;  // received from the other ranks together
  double seconds;
};

}  // namespace

std::string bench_comm(const Config& config, int64_t most, bool json) {
  check_runnable(config);
  const int64_t size = Mesh(config.layout).world_size();
  require<ConfigError>(size > 1,
                       "bench comm needs more than one rank, found a layout of one: add --set layout.n=2");
  std::vector<Measurement> measured;
  run_ranks(config.run, size, [&](Rank& rank) {
    std::vector<int64_t> all(static_cast<size_t>(size));
    for (int64_t r = 0; r < size; ++r) all[static_cast<size_t>(r)] = r;
    const auto group = rank.communicator(all);
    for (const Kind& kind : kinds())
      for (int64_t bytes = kLeast; bytes <= most; bytes *= 4) {
        Alone alone(rank, kind.name);
        kind.record(alone, *group, bytes);
        double slowest = 0;
        for (const std::string& other : rank.control.all_gather(fmt::format("{:.17g}", alone.seconds())))
          slowest = std::max(slowest, std::stod(other));
        group->forget_memory();  // of the buffers, which go now
        if (rank.rank == 0) measured.push_back({kind.name, (size - 1) * bytes, slowest});
      }
  });
  if (measured.empty()) return {};  // rank 0 is another process's
  if (json) {
    nlohmann::json list;
    for (const Measurement& m : measured)
      list.push_back({{"collective", m.name},
                      {"received_bytes", m.bytes},
                      {"seconds", m.seconds},
                      {"bytes_per_s", static_cast<double>(m.bytes) / m.seconds}});
    return nlohmann::json{{"ranks", size}, {"collectives", list}}.dump(1) + "\n";
  }
  Table table({{"collective"},
               {"received", Table::Align::right},
               {"time", Table::Align::right},
               {"GB/s received", Table::Align::right}});
  for (const Measurement& m : measured)
    table.add_row({m.name, format_bytes(m.bytes), format_seconds(m.seconds),
                   fmt::format("{:.1f}", static_cast<double>(m.bytes) / m.seconds / 1e9)});
  return fmt::format("{} ranks, all at once; median of a few, slowest rank\n\n", size) + table.str();
}

}  // namespace moesaic
