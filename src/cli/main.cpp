// moesaic: one program with subcommands. Exit codes: launch/exit_code.h.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "config/nearest.h"
#include "launch/exit_code.h"
#include "launch/launch.h"

namespace {

moesaic::StopFlag g_stop{0};  // the one thing a signal handler may touch

void on_signal(int) {
  if (g_stop.fetch_add(1) == 0) {
    static constexpr char kMessage[] = "\nmoesaic: leaving in good order (again to leave at once)\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  } else {
    std::_Exit(moesaic::kExitInterrupted);
  }
}

void catch_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

/// "moesaic: config is required; moesaic train --help tells more"
std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  std::string command = app->get_name(), what = error.what();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    command += " " + app->get_name();
  }
  const auto words = app->remaining();
  if (!words.empty() && app->get_require_subcommand_min() > 0 && app->get_subcommands().empty()) {
    std::vector<std::string_view> known;
    for (const CLI::App* sub : app->get_subcommands(nullptr)) known.push_back(sub->get_name());
    const auto meant = moesaic::nearest(words.front(), known);
    what = fmt::format("there is no subcommand {}{}", moesaic::excerpt(words.front()),
                       meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
  }
  return fmt::format("moesaic: {}\n{} --help tells more\n", what, command);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Moesaic trains mixture-of-experts language models.\n\n"
      "A first run:\n"
      "  moesaic data prepare TEXT build/data/mine        text to tokens\n"
      "  moesaic train configs/runs/quickstart.toml       train, evaluate, save into runs/quickstart\n"
      "  moesaic report runs/quickstart                   a page that shows the run\n"
      "  moesaic generate runs/quickstart --prompt Hello  let it write\n",
      "moesaic"};
  app.set_version_flag("--version", "moesaic " MOESAIC_VERSION);
  app.require_subcommand(1);
  app.failure_message(usage_message);
  moesaic::cli::add_train(app, g_stop, catch_signals);
  moesaic::cli::add_eval(app);
  moesaic::cli::add_generate(app);
  moesaic::cli::add_data(app, g_stop, catch_signals);
  moesaic::cli::add_inspect(app);
  moesaic::cli::add_report(app);
  moesaic::cli::add_bench(app);
  moesaic::cli::add_tune(app);
  moesaic::cli::add_convert(app, g_stop, catch_signals);
  try {
    app.parse(argc, argv);
    moesaic::leave_launcher();
  } catch (const CLI::RuntimeError& error) {
    if (error.get_exit_code() == moesaic::kExitInterrupted) moesaic::leave_launcher();  // after saving
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? moesaic::kExitDone : moesaic::kExitUsage;
  } catch (const moesaic::OtherRankFailed&) {
    return moesaic::kExitJobFailed;  // its process says why
  } catch (const moesaic::CommError& error) {
    std::fprintf(stderr, "moesaic: %s\n", error.what());
    return moesaic::kExitJobFailed;
  } catch (const moesaic::Error& error) {
    std::fprintf(stderr, "moesaic: %s\n", error.what());
    return moesaic::kExitRefused;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "moesaic: out of host memory\n");
    return moesaic::kExitRefused;
  }
  return moesaic::kExitDone;
}
