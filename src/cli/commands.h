#pragma once
// The subcommands. Each file adds its own to the app: options, help, and what it runs.
#include <CLI/CLI.hpp>

#include "config/config.h"
#include "train/trainer.h"

namespace moesaic::cli {

/// `on_start` is called before what Ctrl-C should end in good order: from then on a signal may set `stop`.
void add_train(CLI::App& app, const StopFlag& stop, void (*on_start)());
void add_eval(CLI::App& app);
void add_generate(CLI::App& app);
void add_data(CLI::App& app, const StopFlag& stop, void (*on_start)());
void add_data_show(CLI::App& data);
void add_inspect(CLI::App& app);
void add_report(CLI::App& app);
void add_bench(CLI::App& app);
void add_tune(CLI::App& app);
void add_convert(CLI::App& app, const StopFlag& stop, void (*on_start)());

/// --set KEY=VALUE, as often as wanted.
void add_settings(CLI::App& command, std::vector<std::string>& settings, const std::string& help);

/// The options that several subcommands share: a configuration file and settings over it.
struct ConfigOptions {
  std::string file;
  std::vector<std::string> settings;
  void add_to(CLI::App& command, bool file_required);
  /// Settings alone start from the defaults.
  Config load() const;
};

}  // namespace moesaic::cli
