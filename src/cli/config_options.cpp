#include "cli/commands.h"
#include "config/parse.h"

namespace moesaic::cli {

void ConfigOptions::add_to(CLI::App& command, bool file_required) {
  auto* option = command.add_option("config", file, "TOML file of the run; every key: moesaic inspect keys")
                     ->type_name("FILE");
  if (file_required) option->required();
  add_settings(command, settings, "over the file, repeatable: --set train.steps=50 --set layout.n=2");
}

void add_settings(CLI::App& command, std::vector<std::string>& settings, const std::string& help) {
  command.add_option("--set", settings, help)->allow_extra_args(false)->option_text("KEY=VALUE");
}

Config ConfigOptions::load() const {
  Config config = file.empty() ? Config{} : parse_config_file(file);
  apply_settings(config, settings);
  return config;
}

}  // namespace moesaic::cli
