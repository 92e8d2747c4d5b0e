#include "base/units.h"
#include "cli/commands.h"

namespace moesaic::cli {

void add_train(CLI::App& app, const StopFlag& stop, void (*on_start)()) {
  CLI::App* command = app.add_subcommand("train",
                                         "Train a model: one thread per rank on this machine.\n"
                                         "Writes runs/<run.name>/: config.toml, metrics.jsonl, events.jsonl, "
                                         "tensorboard/, traces/, checkpoints/.\n"
                                         "Ctrl-C saves and leaves; --resume goes on.");
  struct Options {
    ConfigOptions config;
    std::string resume;
  };
  auto options = std::make_shared<Options>();
  options->config.add_to(*command, true);
  command
      ->add_option("--resume", options->resume,
                   "go on from a checkpoint or run folder; alone: from this run's newest whole checkpoint")
      ->expected(0, 1)
      ->option_text("[FOLDER]");
  command->footer(
      "  moesaic train configs/runs/quickstart.toml\n"
      "  moesaic train configs/runs/quickstart.toml --resume --set train.steps=400\n"
      "  moesaic train configs/runs/quickstart.toml --set run.name=one --set layout.dp=1 --set layout.n=1");
  command->callback([options, command, &stop, on_start] {
    Config config = options->config.load();
    if (command->count("--resume") > 0)
      config.run.resume = options->resume.empty() ? "auto" : options->resume;
    on_start();
    const TrainSummary summary = train(config, stop, stdout);
    std::printf("%lld steps in %s", static_cast<long long>(summary.steps),
                format_seconds(summary.seconds).c_str());
    if (summary.loss) std::printf(", last loss %.4f", *summary.loss);
    if (summary.val_loss) std::printf(", held-out loss %.4f nats per token", *summary.val_loss);
    std::printf("\n%s\n", summary.checkpoint.c_str());
    if (summary.interrupted) throw CLI::RuntimeError(130);
  });
}

}  // namespace moesaic::cli
