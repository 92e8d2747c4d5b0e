#include "cli/commands.h"
#include "data/prepare.h"
#include "data/token_file.h"

namespace moesaic::cli {

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
  prepare->add_option("texts", options->texts, "text files, then the prefix")
      ->required()
      ->expected(2, 1 << 20);
  prepare->callback([options] {
    const std::string prefix = options->texts.back();
    options->texts.pop_back();
    const PreparedTokens made = prepare_text(options->texts, prefix);
    std::printf("%s.bin, %s.idx: %lld tokens in %lld documents\n", prefix.c_str(), prefix.c_str(),
                static_cast<long long>(made.num_tokens), static_cast<long long>(made.num_documents));
  });
  CLI::App* show = command->add_subcommand("show", "What a token file holds.");
  show->add_option("prefix", options->prefix, "path without .bin or .idx")->required();
  show->callback([options] {
    const TokenFile file(options->prefix);
    std::printf("%s: %lld tokens in %lld documents\n", options->prefix.c_str(),
                static_cast<long long>(file.num_tokens()), static_cast<long long>(file.num_documents()));
  });
}

}  // namespace moesaic::cli
