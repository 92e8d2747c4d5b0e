// Times what a run may choose, and writes the tuning file.
#include "base/units.h"
#include "bench/bench.h"
#include "bench/measure.h"
#include "launch/launch.h"
#include "mesh/mesh.h"
#include "ops/initialize/initialize.h"
#include "report/table.h"
#include "train/run_checks.h"
#include "train/session.h"
#include "train/tuning.h"

namespace moesaic {
namespace {

/// Random numbers as in a run: constant ones draw less power, and products run faster on them.
void fill(Device& device, std::byte* memory, int64_t bytes) {
  Program g("fill", device.kind());
  ops::initialize(g, Stream::compute,
                  {.y = g.external(g.slot("all"), 0, "all", DType::bf16, {bytes / 2}), .seed = 1, .std = 1});
  const Plan plan(std::move(g));
  device.replay(plan, {nullptr, memory});
  device.synchronize();
}

/// The products of a step on rank 0's GPU, each alone.
Tuning tune_products(const Config& config) {
  Tuning tuning;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    Tuning mine{.library = tuned_library(config), .products = {}, .dispatch = {}};
    if (config.run.device == DeviceKind::cuda) {
      {
        Session session(config, rank);
        session.initialize();
        session.step(
            [&](std::span<const int64_t> positions) {
              return random_batch(positions, config.train.seq_len, config.model.vocab);
            },
            0, 0);
      }
      Arena& arena = rank.device->arena();
      for (const Purpose purpose : {Purpose::activations, Purpose::workspace, Purpose::optimizer})
        arena.release(purpose);
      const int64_t bytes = ops::gemm_tuning_bytes();
      std::byte* memory = arena.allocate(Purpose::buffers, "tuning", bytes);
      fill(*rank.device, memory, bytes);
      rank.control.barrier();  // all GPUs are as busy as in a run
      mine.products = ops::tune_gemms(memory);
      rank.control.barrier();
    }
    if (rank.rank == 0) tuning = std::move(mine);
  });
  return tuning;
}

double layer_seconds(Config config, Dispatch dispatch) {
  config.layout.dispatch = dispatch;
  config.model.num_layers = 1, config.model.num_dense_layers = 0;
  return median_step_seconds(config, 10);
}

}  // namespace

std::string tune(const Config& config, const std::string& path) {
  check_runnable(config);
  Config plain = config;
  plain.run.tuning.clear();
  Tuning tuning = tune_products(plain);
  if (Mesh(config.layout).size(Axis::e) > 1)
    tuning.dispatch.push_back(
        {dispatch_key(plain), layer_seconds(plain, Dispatch::a2a), layer_seconds(plain, Dispatch::ag_rs)});
  if (tuning.library.empty()) return {};  // rank 0 is another process's
  write_tuning(path, tuning);
  std::string text = fmt::format("timed on {}\n\n", tuning.library);
  if (!tuning.products.empty()) {
    Table table({{"product"},
                 {"first guess", Table::Align::right},
                 {"chosen", Table::Align::right},
                 {"faster by", Table::Align::right}});
    for (const ops::GemmChoice& c : tuning.products)
      table.add_row({c.product, format_seconds(c.first_seconds), format_seconds(c.seconds),
                     fmt::format("{:.1f} %", 100 * (c.first_seconds / c.seconds - 1))});
    text += table.str() + "\n";
  }
  for (const DispatchTimes& d : tuning.dispatch)
    text += fmt::format("dispatch, a step of one layer ({}): a2a {}, ag_rs {}\n", d.layer,
                        format_seconds(d.a2a), format_seconds(d.ag_rs));
  return text + fmt::format("written to {}: train with --set run.tuning={}\n", path, path);
}

}  // namespace moesaic
