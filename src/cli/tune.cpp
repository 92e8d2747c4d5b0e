#include "bench/bench.h"
#include "cli/commands.h"
#include "launch/launch.h"

namespace moesaic::cli {

void add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune",
      "Times what a run may choose and writes the fastest into a file: cuBLASLt's algorithm of each dense "
      "product, and how\ntokens are dispatched. A run reads the file (run.tuning) and times nothing.");
  struct Options {
    ConfigOptions config;
    std::string out = "tuning.json";
  };
  auto options = std::make_shared<Options>();
  options->config.add_to(*command, false);
  command->add_option("--out", options->out, "the file that is written")
      ->option_text("FILE")
      ->capture_default_str();
  command->footer(
      "  moesaic tune configs/runs/w1.toml --out w1_h200.json\n"
      "  moesaic train configs/runs/w1.toml --set run.tuning=w1_h200.json\n"
      "The file holds for this model's shapes, layout, GPU and library; another GPU refuses it.");
  command->callback([options] {
    const Config config = options->config.load();
    const std::string report = tune(config, options->out);
    if (speaks_for_job(config.run)) std::fputs(report.c_str(), stdout);
  });
}

}  // namespace moesaic::cli
