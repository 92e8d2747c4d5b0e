#include "train/generate.h"

#include "cli/commands.h"

namespace moesaic::cli {

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Text that follows a prompt, from a checkpoint.");
  struct Options {
    std::string from;
    std::string tokenizer;
    GenerateOptions generate;
  };
  auto options = std::make_shared<Options>();
  command->add_option("from", options->from, "a run folder (its newest checkpoint) or a checkpoint")
      ->required()
      ->type_name("FOLDER");
  command->add_option("--prompt", options->generate.prompt, "what the text begins with");
  command
      ->add_option(
          "--tokenizer", options->tokenizer,
          "bytes, or the path of a tokenizer.json, a .model or their folder; without: data.tokenizer")
      ->type_name("SPEC");
  command->add_option("--tokens", options->generate.num_tokens, "how many tokens to add")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command->add_option("--temperature", options->generate.temperature, "0 = always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--seed", options->generate.seed, "another seed gives another text")
      ->capture_default_str();
  command->footer(
      "  moesaic generate runs/quickstart --prompt \"hacker: n.\" --tokens 300 --temperature 0.5");
  command->callback([options] {
    const std::string checkpoint = find_checkpoint(options->from);
    Config config = config_of(CheckpointReader(checkpoint, Verify::sizes));
    if (!options->tokenizer.empty()) config.data.tokenizer = options->tokenizer;
    std::fputs(options->generate.prompt.c_str(), stdout);
    generate(config, checkpoint, options->generate, [](const std::string& text) {
      std::fputs(text.c_str(), stdout);
      std::fflush(stdout);
    });
    std::fputs("\n", stdout);
  });
}

}  // namespace moesaic::cli
