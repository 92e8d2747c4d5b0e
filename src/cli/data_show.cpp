#include <algorithm>

#include "base/units.h"
#include "cli/commands.h"
#include "config/field_table.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"

namespace moesaic::cli {
namespace {

constexpr int64_t kShownTokens = 24;

struct Options {
  std::string prefix, tokenizer = "bytes";
  int64_t documents = 0;
};

void show(const Options& options) {
  const TokenFile file(options.prefix);
  const auto say = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  say(fmt::format("{0}.bin, {0}.idx: {1} tokens in {2} document{3}, ids stored as {4}, {5}", options.prefix,
                  file.num_tokens(), file.num_documents(), file.num_documents() == 1 ? "" : "s",
                  name_of(file.dtype()), format_bytes(file.num_tokens() * size_of(file.dtype()))));
  if (options.documents == 0) return;
  const auto tokenizer = open_tokenizer(options.tokenizer);
  for (int64_t d = 0; d < std::min(options.documents, file.num_documents()); ++d) {
    const int64_t begin = file.document_start(d), end = file.document_start(d + 1);
    std::vector<int32_t> ids(static_cast<size_t>(std::min(end - begin, kShownTokens)));
    file.read(begin, ids, tokenizer->vocab_size());
    say(fmt::format("document {}, {} tokens: {}{}", d, end - begin, toml_string(tokenizer->decode(ids)),
                    end - begin > kShownTokens ? " ..." : ""));
  }
}

}  // namespace

void add_data_show(CLI::App& data) {
  CLI::App* command = data.add_subcommand("show", "What a token file holds.");
  auto options = std::make_shared<Options>();
  command->add_option("prefix", options->prefix, "path without .bin or .idx")
      ->required()
      ->type_name("PREFIX");
  command
      ->add_option("--documents", options->documents,
                   "also how each of the first N documents begins, as text")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 62))
      ->option_text("N");
  command->add_option("--tokenizer", options->tokenizer, "what the ids were made with")
      ->capture_default_str();
  command->footer("  moesaic data show build/data/books --documents 3");
  command->callback([options] { show(*options); });
}

}  // namespace moesaic::cli
