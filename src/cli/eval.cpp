#include "cli/commands.h"
#include "config/parse.h"
#include "launch/launch.h"

namespace moesaic::cli {

void add_eval(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("eval", "Held-out loss of a checkpoint, on the run's own held-out text or another.");
  struct Options {
    std::string from;
    std::vector<std::string> settings;
    int64_t sequences = 0;
  };
  auto options = std::make_shared<Options>();
  command->add_option("from", options->from, "a run folder (its newest checkpoint) or a checkpoint")
      ->required()
      ->type_name("FOLDER");
  add_settings(*command, options->settings, "over the run's configuration: its layout, data and so on");
  command->add_option("--sequences", options->sequences, "how many held-out sequences; 0 = all")
      ->check(CLI::Range(0, 1 << 30))
      ->option_text("INT = 0");
  command->footer(
      "  moesaic eval runs/quickstart\n"
      "  moesaic eval runs/quickstart --set layout.dp=1 --set layout.n=1 --set data.valid=build/data/other");
  command->callback([options] {
    const std::string checkpoint = find_checkpoint(options->from);
    Config config = config_of(CheckpointReader(checkpoint, Verify::sizes));
    apply_settings(config, options->settings);
    const auto result = evaluate_checkpoint(config, checkpoint, options->sequences);
    if (!speaks_for_job(config.run)) return;
    std::printf("%s\nheld-out loss %.6f nats per token over %lld tokens\n", checkpoint.c_str(), result.loss,
                static_cast<long long>(result.counted));
  });
}

}  // namespace moesaic::cli
