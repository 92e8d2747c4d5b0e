#include "train/inspect.h"

#include "base/error.h"
#include "cli/commands.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/shapes.h"

namespace moesaic::cli {

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Look at a model, a layout's memory, a program or the configuration without running it.");
  command->require_subcommand(1);
  struct Options {
    ConfigOptions config;
    std::string model, program;
    std::vector<std::string> settings;
  };
  auto options = std::make_shared<Options>();

  CLI::App* model =
      command->add_subcommand("model", "Parameters, FLOPs per token, tables of parameters and activations.");
  model->add_option("name", options->model, "a shipped shape (none: list them)")->type_name("NAME");
  add_settings(*model, options->settings, "for example --set train.seq_len=4096 (by default 8192)");
  model->callback([options] {
    if (options->model.empty()) {
      for (const auto& name : model_shape_names()) std::printf("%s\n", std::string(name).c_str());
      return;
    }
    Config config;
    config.model = model_shape(options->model);
    config.train.seq_len = 8192;
    apply_settings(config, options->settings);
    std::fputs(inspect_model(config).c_str(), stdout);
  });

  CLI::App* memory = command->add_subcommand("memory", "Bytes per rank for a run's layout, by purpose.");
  options->config.add_to(*memory, false);
  memory->footer(
      "  moesaic inspect memory configs/runs/quickstart.toml\n"
      "  moesaic inspect memory --set model.preset=mixtral-8x7b --set layout.n=8 --set layout.dp=4 \\\n"
      "      --set train.seq_len=8192 --set train.compute=bf16");
  memory->callback([options] { std::fputs(inspect_memory(options->config.load()).c_str(), stdout); });

  auto program_options = std::make_shared<Options>();
  CLI::App* program =
      command->add_subcommand("program", "Each op of rank 0's programs with its stream, waits and bytes.");
  program_options->config.add_to(*program, false);
  program
      ->add_option("--only", program_options->program,
                   "programs whose name holds this, for example \"MoE layer forward\"")
      ->type_name("NAME");
  program->callback([program_options] {
    std::fputs(inspect_program(program_options->config.load(), program_options->program).c_str(), stdout);
  });

  command->add_subcommand("keys", "Every key of the configuration: default, type, meaning.")->callback([] {
    std::fputs(config_help().c_str(), stdout);
  });
}

}  // namespace moesaic::cli
