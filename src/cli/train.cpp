#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "launch/exit_code.h"
#include "launch/launch.h"
#include "launch/rank_variables.h"
#include "mesh/mesh.h"
#include "train/run_checks.h"
#include "train/supervise.h"

namespace moesaic::cli {
namespace {

struct Options {
  ConfigOptions config;
  std::string resume;
  bool resumes = false;
  int64_t processes = 0, restarts = 0;
};

/// Starts the ranks as processes of this machine, or with --restart alone as threads of one, and watches over them. What any
/// of them would refuse is refused here, once.
void start_processes(const Options& options, const Config& config) {
  check_runnable(config);
  const int64_t ranks = Mesh(config.layout).world_size();
  require<ConfigError>(options.processes == 0 || options.processes == ranks,
                       "--processes {}, but the layout has {} ranks (pp * dp * n): each process is one rank",
                       options.processes, ranks);
  const char* option = options.processes > 0 ? "--processes" : "--restart";
  require<ConfigError>(options.processes == 0 || config.run.launcher == Launcher::automatic ||
                           config.run.launcher == Launcher::torchrun,
                       "--processes starts ranks as torchrun does: leave run.launcher = auto");
  if (const auto place = find_rank(config.run, process_environment))
    fail<ConfigError>("{} is for when no launcher starts the ranks, but this is rank {} of {} already",
                      option, place->rank, place->world_size);
  open_data(config, config.train.eval_every > 0);
  check_run_folder(config.run);
  Supervision supervision{.processes = options.processes, .max_restarts = options.restarts};
  supervision.arguments = {"train", options.config.file};
  for (const std::string& setting : options.config.settings)
    supervision.arguments.insert(supervision.arguments.end(), {"--set", setting});
  if (options.resumes) supervision.resume.emplace_back("--resume");
  if (!options.resume.empty()) supervision.resume.push_back(options.resume);
  const int code = supervise(config.run, supervision);
  if (code != kExitDone) throw CLI::RuntimeError(code);
}

void print(const TrainSummary& summary) {
  std::printf("%lld steps in %s", static_cast<long long>(summary.steps),
              format_seconds(summary.seconds).c_str());
  if (summary.loss) std::printf(", last loss %.4f", *summary.loss);
  if (summary.val_loss) std::printf(", held-out loss %.4f nats per token", *summary.val_loss);
  std::printf("\n%s\n", summary.checkpoint.c_str());
}

void run(const Config& config, const StopFlag& stop) {
  const TrainSummary summary = train(config, stop, stdout);
  if (speaks_for_job(config.run)) print(summary);
  if (summary.interrupted) throw CLI::RuntimeError(kExitInterrupted);
}

}  // namespace

void add_train(CLI::App& app, const StopFlag& stop, void (*on_start)()) {
  CLI::App* command = app.add_subcommand(
      "train",
      "Train a model. Ranks are threads of this process; --processes N makes them processes of this "
      "machine;\n"
      "under torchrun --no-python, srun or mpirun each process is one rank (docs/launching.md).\n"
      "Writes runs/<run.name>/: config.toml, run.json, metrics.jsonl, events.jsonl, tensorboard/, traces/, "
      "checkpoints/.\n"
      "Ctrl-C saves and leaves; --resume goes on.");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command, true);
  command
      ->add_option("--resume", options->resume,
                   "go on from a checkpoint or run folder; alone: from this run's newest whole checkpoint")
      ->expected(0, 1)
      ->option_text("[FOLDER]");
  command
      ->add_option("--processes", options->processes,
                   "run each of the layout's N ranks in a process of its own")
      ->check(CLI::Range(1, 1 << 16))
      ->option_text("N");
  command
      ->add_option(
          "--restart", options->restarts,
          "when ranks die or hang, start all again from the newest whole checkpoint, at most M times "
          "without a new one")
      ->check(CLI::Range(0, 1 << 20))
      ->option_text("M");
  command->footer(
      "  moesaic train configs/runs/quickstart.toml\n"
      "  moesaic train configs/runs/quickstart.toml --resume --set train.steps=400\n"
      "  moesaic train configs/runs/quickstart.toml --set run.name=one --set layout.dp=1 --set layout.n=1\n"
      "  moesaic train configs/runs/quickstart.toml --processes 4 --restart 3");
  command->callback([options, command, &stop, on_start] {
    options->resumes = command->count("--resume") > 0;
    Config config = options->config.load();
    if (options->resumes) config.run.resume = options->resume.empty() ? "auto" : options->resume;
    if (command->count("--processes") > 0 || options->restarts > 0) return start_processes(*options, config);
    on_start();
    run(config, stop);
  });
}

}  // namespace moesaic::cli
