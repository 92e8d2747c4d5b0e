#include "base/error.h"
#include "cli/commands.h"
#include "report/page/page.h"

namespace moesaic::cli {
namespace {

PageX x_of(const std::string& name) {
  return name == "tokens" ? PageX::tokens : name == "time" ? PageX::time : PageX::step;
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "report",
      "A page that shows a run, or several against each other: loss, speed, gradient norm, expert load, "
      "memory,\n"
      "a step's timeline, events, configuration. One HTML file that needs nothing else; open it in any "
      "browser.\n"
      "Works while a run goes on, and on one that died.");
  struct Options {
    std::vector<std::string> folders;
    std::string out, x = "step";
    int64_t trace_step = 0;
  };
  auto options = std::make_shared<Options>();
  command->add_option("runs", options->folders, "folders of runs")
      ->required()
      ->expected(-1)
      ->option_text("RUN...");
  command->add_option("--out", options->out, "the page; by default report.html in the first run's folder")
      ->option_text("FILE");
  command->add_option("--x", options->x, "what lines are drawn over: step, tokens or time (of training)")
      ->check(CLI::IsMember({"step", "tokens", "time"}))
      ->option_text("NAME = step");
  command
      ->add_option("--trace-step", options->trace_step,
                   "whose timeline is shown; by default the newest traced step's")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 53))
      ->option_text("STEP");
  command->footer(
      "  moesaic report runs/quickstart\n"
      "  moesaic report runs/a runs/b --x tokens --out compare.html\n"
      "A timeline needs a traced step: moesaic train ... --set train.trace_steps=[100]");
  command->callback([options, command] {
    const std::string out = options->out.empty() ? options->folders.front() + "/report.html" : options->out;
    const auto step = command->count("--trace-step") > 0 ? std::optional(options->trace_step) : std::nullopt;
    write_report(options->folders, step, {x_of(options->x)}, out);
    std::printf("%s\n", out.c_str());
  });
}

}  // namespace moesaic::cli
