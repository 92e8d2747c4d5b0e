#include "cli/commands.h"
#include "config/parse.h"

namespace moesaic::cli {

void ConfigOptions::add_to(CLI::App& command, bool file_required) {
  auto* option = command.add_option("config", file, "TOML file of the run; every key: moesaic inspect keys");
  if (file_required) option->required();
  command
      .add_option("--set", settings,
                  "key=value over the file, repeatable: --set train.steps=50 --set layout.n=2")
      ->allow_extra_args(false);
}

Config ConfigOptions::load() const {
  Config config = file.empty() ? Config{} : parse_config_file(file);
  apply_settings(config, settings);
  return config;
}

}  // namespace moesaic::cli
