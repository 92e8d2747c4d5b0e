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
    int64_t steps = 30;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* step = command->add_subcommand(
      "step", "A training step on random tokens: tokens/s, floor, and where the time goes by op.");
  options->config.add_to(*step, false);
  step->add_option("--steps", options->steps, "measured steps")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  step->add_flag("--json", options->json, "one JSON object instead of a table");
  step->callback([options] {
    const Config config = options->config.load();
    const std::string report = bench_step(config, options->steps, options->json);
    if (speaks_for_job(config.run)) std::fputs(report.c_str(), stdout);
  });
}

}  // namespace moesaic::cli
