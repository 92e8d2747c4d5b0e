#include <filesystem>

#include "base/file.h"
#include "cli/commands.h"
#include "data/prepare.h"
#include "data/token_file.h"

namespace moesaic::cli {
namespace {

void say(const std::string& prefix, int64_t tokens, int64_t documents) {
  std::printf("%s.bin, %s.idx: %lld tokens in %lld document%s\n", prefix.c_str(), prefix.c_str(),
              static_cast<long long>(tokens), static_cast<long long>(documents), documents == 1 ? "" : "s");
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* command = app.add_subcommand("data", "Token files: make them from text, look at them.");
  command->require_subcommand(1);
  struct Options {
    std::vector<std::string> texts;
    std::string prefix;
  };
  auto options = std::make_shared<Options>();
  CLI::App* prepare = command->add_subcommand("prepare",
                                              "Text files to PREFIX.bin and PREFIX.idx (Megatron's indexed "
                                              "format): a token per byte, a document per file.");
  prepare->add_option("texts", options->texts, "one text file or more, then the prefix of what is written")
      ->required()
      ->expected(-2)
      ->option_text("TEXT... PREFIX");
  prepare->footer(
      "  moesaic data prepare book1.txt book2.txt build/data/books\n"
      "  moesaic train configs/runs/quickstart.toml --set data.train=build/data/books --set run.name=books");
  prepare->callback([options] {
    const std::string prefix = options->texts.back();
    options->texts.pop_back();
    const auto folder = std::filesystem::path(prefix).parent_path();
    if (!folder.empty()) make_folders(folder.string());
    const PreparedTokens made = prepare_text(options->texts, prefix);
    say(prefix, made.num_tokens, made.num_documents);
  });
  CLI::App* show = command->add_subcommand("show", "What a token file holds.");
  show->add_option("prefix", options->prefix, "path without .bin or .idx")->required()->type_name("PREFIX");
  show->callback([options] {
    const TokenFile file(options->prefix);
    say(options->prefix, file.num_tokens(), file.num_documents());
  });
}

}  // namespace moesaic::cli
