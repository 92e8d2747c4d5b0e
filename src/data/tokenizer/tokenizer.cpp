#include "data/tokenizer/tokenizer.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/tokenizer_json.h"

namespace moesaic {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return byte_tokenizer::kVocab; }
  std::vector<int32_t> encode(std::string_view text) const override { return byte_tokenizer::encode(text); }
  std::string decode(std::span<const int32_t> ids) const override { return byte_tokenizer::decode(ids); }
  int32_t end_of_document() const override { return byte_tokenizer::kEnd; }
  std::string name() const override { return "bytes"; }
};

bool is_model(const std::string& path) {
  return path.ends_with(".model") || path.find(".model.") != std::string::npos;
}

/// The tokenizer file of a folder.
std::string file_in(const std::string& folder) {
  std::string model;
  for (const std::string& name : list_folder(folder)) {
    std::string path = (std::filesystem::path(folder) / name).string();
    if (name == "tokenizer.json") return path;
    if (!is_model(name)) continue;
    require<ConfigError>(model.empty(), "the folder {} holds {} and {}: name the one to use", folder, model,
                         path);
    model = path;
  }
  require<IoError>(!model.empty(), "the folder {} holds neither a tokenizer.json nor a SentencePiece .model",
                   folder);
  return model;
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  require<ConfigError>(!spec.empty(), "no tokenizer is named; use \"bytes\" or a path");
  std::error_code none;
  const std::string path = std::filesystem::is_directory(spec, none) ? file_in(spec) : spec;
  if (path.ends_with(".json")) return read_tokenizer_json(path);
  if (is_model(std::filesystem::path(path).filename().string())) return read_sentencepiece(path);
  fail<ConfigError>(
      "the tokenizer \"{}\" is not \"bytes\", a .json file, a SentencePiece .model, or a folder that holds "
      "one",
      spec);
}

}  // namespace moesaic
