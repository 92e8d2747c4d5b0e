// moesaic: one program with subcommands. Exit codes: 0 done, 1 refused or failed with a message, 2 wrong usage,
// 3 a rank had to be left behind, 130 interrupted (after saving).
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"

namespace {

moesaic::StopFlag g_stop{0};  // the one thing a signal handler may touch

void on_signal(int) {
  if (g_stop.fetch_add(1) == 0) {
    static constexpr char kMessage[] =
        "\nmoesaic: finishing the step, saving, leaving (again to leave at once)\n";
    [[maybe_unused]] const auto written = std::fwrite(kMessage, 1, sizeof kMessage - 1, stderr);
  } else {
    std::_Exit(130);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  CLI::App app{
      "Moesaic trains mixture-of-experts language models.\n\n"
      "A first run:\n"
      "  moesaic data prepare TEXT build/data/mine        text to tokens\n"
      "  moesaic train configs/runs/quickstart.toml       train, evaluate, save into runs/quickstart\n"
      "  moesaic generate runs/quickstart --prompt Hello  let it write"};
  app.require_subcommand(1);
  moesaic::cli::add_train(app, g_stop);
  moesaic::cli::add_eval(app);
  moesaic::cli::add_generate(app);
  moesaic::cli::add_data(app);
  moesaic::cli::add_inspect(app);
  moesaic::cli::add_bench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  } catch (const moesaic::Error& error) {
    std::fprintf(stderr, "moesaic: %s\n", error.what());
    return 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "moesaic: out of host memory\n");
    return 1;
  }
  return g_stop.load() > 0 ? 130 : 0;
}
