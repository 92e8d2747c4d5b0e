#include "bench/bench.h"

#include "cli/commands.h"
#include "launch/launch.h"

namespace moesaic::cli {

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure: the machine's ceilings first, then what was asked for, as time and percent of its floor.");
  command->require_subcommand(1);
  struct Options {
    ConfigOptions config;
    int64_t steps = 30, most = 256;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, const char* help) {
    CLI::App* bench = command->add_subcommand(name, help);
    options->config.add_to(*bench, false);
    bench->add_flag("--json", options->json, "one JSON object instead of a table");
    return bench;
  };
  const auto print = [](const Config& config, const std::string& report) {
    if (speaks_for_job(config.run)) std::fputs(report.c_str(), stdout);
  };
  const auto add_steps = [&](const char* name, BenchBy by, const char* help, void (*prepare)(Config&)) {
    CLI::App* bench = add(name, help);
    bench->add_option("--steps", options->steps, "measured steps")
        ->check(CLI::Range(1, 1 << 30))
        ->capture_default_str();
    bench->callback([=] {
      Config config = options->config.load();
      prepare(config);
      print(config, bench_step(config, by, options->steps, options->json));
    });
  };
  const auto as_it_is = [](Config&) {};
  add_steps("step", BenchBy::op,
            "A training step on random tokens: tokens/s, floor, and where the time goes by kind of op.",
            as_it_is);
  add_steps("ops", BenchBy::shape, "The same, a line for each op and shape.", as_it_is);
  add_steps("layer", BenchBy::segment,
            "One MoE layer, forward and backward, by its parts: attention, dispatch, experts, combine.",
            [](Config& config) { config.model.num_layers = 1, config.model.num_dense_layers = 0; });
  CLI::App* comm = add(
      "comm", "Collectives between the ranks of a layout, each receiving 64 KiB and more from every other.");
  comm->add_option("--most", options->most, "MiB that a rank receives from every other in the longest one")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  comm->callback([=] {
    const Config config = options->config.load();
    print(config, bench_comm(config, options->most << 20, options->json));
  });
}

}  // namespace moesaic::cli
