#include <chrono>
#include <filesystem>

#include "base/file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "data/prepare.h"
#include "launch/exit_code.h"
#include "report/progress.h"

namespace moesaic::cli {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Options {
  std::vector<std::string> inputs;  // the last one is the prefix
  std::string tokenizer = "bytes", format = "auto";
  PrepareOptions prepare;
  bool no_end = false;
};

std::string summary(const PreparedTokens& made, double seconds) {
  return fmt::format("{} tokens in {} document{}, from {} in {}, {:.1f} MB/s", made.num_tokens,
                     made.num_documents, made.num_documents == 1 ? "" : "s", format_bytes(made.num_bytes),
                     format_seconds(seconds), static_cast<double>(made.num_bytes) / 1e6 / seconds);
}

void prepare(Options options, const StopFlag& stop) {
  const std::string prefix = options.inputs.back();
  options.inputs.pop_back();
  options.prepare.end_of_document = !options.no_end;
  if (options.format == "text") options.prepare.format = TextFormat::text;
  if (options.format == "jsonl") options.prepare.format = TextFormat::jsonl;
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const auto folder = std::filesystem::path(prefix).parent_path();
  if (!folder.empty()) make_folders(folder.string());
  const bool terminal = terminal_columns(stderr) > 0;
  const double begin = now();
  double shown = begin;
  const auto done =
      prepare_tokens(options.inputs, prefix, *tokenizer, options.prepare, [&](const PreparedTokens& so_far) {
        if (stop.load() != 0) throw CLI::RuntimeError(kExitInterrupted);
        if (!terminal || now() - shown < 0.2) return;
        shown = now();
        std::fprintf(stderr, "\r\033[K%s", summary(so_far, shown - begin).c_str());
      });
  if (terminal && shown > begin) std::fputs("\r\033[K", stderr);
  std::printf("%s.bin, %s.idx: %s\n", prefix.c_str(), prefix.c_str(), summary(done, now() - begin).c_str());
  if (done.num_broken > 0)
    std::printf("passed over %lld broken line%s, the first: %s\n", static_cast<long long>(done.num_broken),
                done.num_broken == 1 ? "" : "s", done.first_broken.c_str());
}

void add_prepare(CLI::App& data, const StopFlag& stop, void (*on_start)()) {
  CLI::App* command = data.add_subcommand(
      "prepare",
      "Text to PREFIX.bin and PREFIX.idx (Megatron's indexed format): a document per text file, or per line "
      "of\n"
      "JSON lines; plain or .zst; - is standard input. On all cores, with the same result for any --jobs.");
  auto options = std::make_shared<Options>();
  PrepareOptions& p = options->prepare;
  command->add_option("inputs", options->inputs, "one input or more, then the prefix of what is written")
      ->required()
      ->expected(-2)
      ->option_text("INPUT... PREFIX");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "bytes, or the path of a tokenizer.json, a .model, or a folder that holds one")
      ->capture_default_str();
  command->add_option("--format", options->format, "auto: jsonl for names in .jsonl, .ndjson or .json")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}))
      ->capture_default_str();
  command->add_option("--key", p.key, "which string of a JSON line is the document")->capture_default_str();
  command->add_option("--jobs", p.num_threads, "threads; 0 = one per core")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_flag("--skip-broken", p.skip_broken, "pass over broken JSON lines and count them");
  command->add_flag("--no-end", options->no_end, "no end-of-document id after each document");
  command->footer(
      "  moesaic data prepare book1.txt book2.txt build/data/books\n"
      "  moesaic data prepare dump-*.jsonl.zst build/data/web --tokenizer models/mixtral/tokenizer.json\n"
      "  moesaic train configs/runs/quickstart.toml --set data.train=build/data/books --set run.name=books");
  command->callback([options, &stop, on_start] {
    on_start();
    prepare(*options, stop);
  });
}

}  // namespace

void add_data(CLI::App& app, const StopFlag& stop, void (*on_start)()) {
  CLI::App* command = app.add_subcommand("data", "Token files: make them from text, look at them.");
  command->require_subcommand(1);
  add_prepare(*command, stop, on_start);
  add_data_show(*command);
}

}  // namespace moesaic::cli
