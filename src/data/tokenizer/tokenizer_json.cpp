#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/json_parts.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/pool.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/tokenizer/token_decoders.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

using nlohmann::json;

constexpr int64_t kMaxFile = int64_t{256} << 20;
constexpr size_t kMaxText = std::numeric_limits<int32_t>::max() / 4;  // of one encode(), in bytes

const json kNull;

const json& part(const json& file, const char* name) {
  const auto entry = file.find(name);
  return entry == file.end() ? kNull : *entry;
}

/// Everything that a file says, checked.
struct Parts {
  Vocabulary vocabulary;
  BpeModel::Merges merges;
  BpeOptions options;
  std::vector<AddedToken> added;
  std::vector<std::string> tokens;  // by id; empty where an id is not used
};

void read_vocabulary(const json& value, Parts& parts, const std::string& name) {
  require<IoError>(value.is_object(), "{}: \"vocab\" must be an object of tokens and ids", name);
  for (const auto& [token, id] : value.items()) {
    require<IoError>(id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX,
                     "{}: the id of the token \"{}\" must be a whole number below 2^31", name, token);
    parts.vocabulary.emplace(token, id.get<int32_t>());
  }
}

void read_merges(const json& value, Parts& parts, const std::string& name) {
  for (const json& merge : value) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      parts.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    require<IoError>(merge.is_string(), "{}: merge {} must be a string or a pair of strings", name,
                     parts.merges.size());
    const auto& both = merge.get_ref<const std::string&>();
    if (both.starts_with("#version")) continue;
    const size_t space = both.find(' ');
    require<IoError>(space != std::string::npos && both.find(' ', space + 1) == std::string::npos,
                     "{}: merge {}, \"{}\", must be two tokens with a space between them", name,
                     parts.merges.size(), both);
    parts.merges.emplace_back(both.substr(0, space), both.substr(space + 1));
  }
  require<IoError>(parts.merges.size() < size_t{1} << 30, "{}: too many merges", name);
}

void read_model(const json& model, Parts& parts, const std::string& name) {
  using json_parts::flag;
  const std::string type = json_parts::text(model, "type", "BPE", name);  // absent in old files
  if (type != "BPE") json_parts::refuse("model", type, name);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    require<ConfigError>(json_parts::text(model, affix, "", name).empty(), "{}: \"{}\" is not supported",
                         name, affix);
  if (const json& dropout = part(model, "dropout"); !dropout.is_null())
    require<ConfigError>(dropout.is_number() && dropout.get<double>() == 0,
                         "{}: \"dropout\" makes ids random and is not supported; set it to null", name);
  read_vocabulary(member(model, "vocab", name), parts, name);
  read_merges(array_member(model, "merges", name), parts, name);
  parts.options.byte_fallback = flag(model, "byte_fallback", false, name);
  parts.options.fuse_unk = flag(model, "fuse_unk", false, name);
  parts.options.ignore_merges = flag(model, "ignore_merges", false, name);
  if (const json& unk = part(model, "unk_token"); !unk.is_null()) {
    const auto token = parts.vocabulary.find(string_member(model, "unk_token", name));
    require<IoError>(token != parts.vocabulary.end(), "{}: \"unk_token\" is not in the vocabulary", name);
    parts.options.unk = token->second;
  }
}

/// Gives each id its token.
void index_tokens(Parts& parts, const std::string& name) {
  const size_t count = parts.vocabulary.size() + parts.added.size();
  int64_t last = -1;
  for (const auto& [token, id] : parts.vocabulary) last = std::max<int64_t>(last, id);
  for (const AddedToken& token : parts.added) last = std::max<int64_t>(last, token.id);
  require<IoError>(last >= 0, "{}: the vocabulary is empty", name);
  require<IoError>(last <= static_cast<int64_t>(8 * count + 4096), "{}: {} tokens with ids up to {}", name,
                   count, last);
  parts.tokens.resize(static_cast<size_t>(last) + 1);
  const auto place = [&](const std::string& token, int32_t id) {
    std::string& at = parts.tokens[static_cast<size_t>(id)];
    require<IoError>(at.empty() || at == token, "{}: \"{}\" and \"{}\" have the same id, {}", name, at, token,
                     id);
    at = token;
  };
  for (const auto& [token, id] : parts.vocabulary) place(token, id);
  for (const AddedToken& token : parts.added) {
    const auto entry = parts.vocabulary.find(token.content);
    require<IoError>(entry == parts.vocabulary.end() || entry->second == token.id,
                     "{}: the added token \"{}\" has the id {}, in the vocabulary it has another", name,
                     token.content, token.id);
    place(token.content, token.id);
  }
}

void check_post_processor(const json& value, const std::string& name) {
  if (value.is_null()) return;
  const std::string type = json_parts::type_of(value, name);
  if (type == "Sequence") {
    for (const json& step : json_parts::members(value, "processors", name)) check_post_processor(step, name);
    return;
  }
  constexpr std::string_view kKnown[] = {"ByteLevel", "TemplateProcessing", "BertProcessing",
                                         "RobertaProcessing"};
  if (std::find(std::begin(kKnown), std::end(kKnown), type) == std::end(kKnown))
    json_parts::refuse("post_processor", type, name);
}

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const json& file, std::string name, const std::string& end_token)
      : name_(std::move(name)),
        parts_(read(file, name_)),
        normalizers_(part(file, "normalizer"), name_),
        pre_tokenizers_(part(file, "pre_tokenizer"), name_),
        decoders_(part(file, "decoder"), name_),
        added_(parts_.added, normalizers_),
        model_(make_model()),
        end_of_document_(find_end(end_token)) {
    check_post_processor(part(file, "post_processor"), name_);
    for (const AddedToken& token : parts_.added)  // decoding writes them as they are found
      if (token.normalized) parts_.tokens[static_cast<size_t>(token.id)] = normalizers_.apply(token.content);
    parts_.vocabulary = {};  // the model has its own
    parts_.merges = {};
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(parts_.tokens.size()); }
  int32_t end_of_document() const override { return end_of_document_; }
  std::string name() const override { return name_; }

  std::vector<int32_t> encode(std::string_view text) const override {
    require<ConfigError>(text.size() <= kMaxText,
                         "a text of {} bytes is too long to encode at once; at most {}", text.size(),
                         kMaxText);
    if (utf8::valid_length(text) != text.size()) return encode_valid(utf8::replace_invalid(text));
    return encode_valid(text);
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<std::string> tokens;
    for (const int32_t id : ids) {
      require<ConfigError>(id >= 0 && id < vocab_size(), "{} has ids 0 to {}, not {}", name_,
                           vocab_size() - 1, id);
      const std::string& token = parts_.tokens[static_cast<size_t>(id)];
      if (!token.empty() && !added_.is_special(id)) tokens.push_back(token);
    }
    return decoders_.apply(std::move(tokens));
  }

 private:
  struct Scratch {
    WordScratch words;
    Pieces pieces;
  };

  static Parts read(const json& file, const std::string& name) {
    require<IoError>(file.is_object(), "{}: a tokenizer.json is an object", name);
    Parts parts;
    read_model(member(file, "model", name), parts, name);
    if (!part(file, "added_tokens").is_null())
      for (const json& token : array_member(file, "added_tokens", name))
        parts.added.push_back(read_added_token(token, name));
    index_tokens(parts, name);
    return parts;
  }

  BpeModel make_model() {
    parts_.options.byte_level = pre_tokenizers_.ends_in_bytes() && BpeModel::has_all_bytes(parts_.vocabulary);
    if (!parts_.options.byte_level) pre_tokenizers_.write_bytes();
    return {parts_.vocabulary, parts_.merges, parts_.options, name_};
  }

  int32_t find_end(const std::string& wanted) const {
    const auto id_of = [&](std::string_view token) -> int64_t {
      const auto at = std::find(parts_.tokens.begin(), parts_.tokens.end(), token);
      return at == parts_.tokens.end() ? -1 : at - parts_.tokens.begin();
    };
    if (!wanted.empty()) {
      const int64_t id = id_of(wanted);
      require<ConfigError>(id >= 0, "{}: the end-of-document token \"{}\" is not in the vocabulary", name_,
                           wanted);
      return static_cast<int32_t>(id);
    }
    for (size_t i = 0; !usual_end_token(i).empty(); ++i)
      if (const int64_t id = id_of(usual_end_token(i)); id >= 0) return static_cast<int32_t>(id);
    fail<ConfigError>(
        "{} has no token that ends a document: name it as \"eos_token\" in a tokenizer_config.json beside it",
        name_);
  }

  std::vector<int32_t> encode_valid(std::string_view text) const {
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3);
    const auto scratch = scratch_.take();
    added_.split_raw(text, [&](TextRange range, int32_t id) {
      if (id >= 0) return ids.push_back(id);
      const std::string_view raw = text.substr(range.begin, range.end - range.begin);
      if (normalizers_.empty()) return encode_normalized(raw, range.begin == 0, ids, *scratch);
      encode_normalized(normalizers_.apply(raw), range.begin == 0, ids, *scratch);
    });
    return ids;
  }

  void encode_normalized(std::string_view text, bool at_start, std::vector<int32_t>& ids,
                         Scratch& scratch) const {
    if (!added_.any_normalized()) return encode_plain(text, at_start, ids, scratch);
    added_.split_normalized(text, [&](TextRange range, int32_t id) {
      if (id >= 0) return ids.push_back(id);
      encode_plain(text.substr(range.begin, range.end - range.begin), at_start && range.begin == 0, ids,
                   scratch);
    });
  }

  void encode_plain(std::string_view text, bool at_start, std::vector<int32_t>& ids, Scratch& scratch) const {
    if (text.empty()) return;
    Pieces& pieces = scratch.pieces;
    pieces.text.assign(text);
    pieces.ranges.assign(1, {0, text.size()});
    pieces.at_start = at_start;
    pre_tokenizers_.apply(pieces);
    const std::string_view rewritten = pieces.text;
    for (const TextRange range : pieces.ranges)
      model_.encode(rewritten.substr(range.begin, range.end - range.begin), ids, scratch.words);
  }

  std::string name_;
  Parts parts_;
  Normalizers normalizers_;
  PreTokenizers pre_tokenizers_;
  TokenDecoders decoders_;
  AddedTokens added_;
  BpeModel model_;
  int32_t end_of_document_;
  mutable Pool<Scratch> scratch_;
};

std::string end_token_beside(const std::string& path) {
  const auto config = std::filesystem::path(path).parent_path() / "tokenizer_config.json";
  if (!path_exists(config.string())) return {};
  const json file = parse_json(read_file(config.string(), kMaxFile), config.string());
  const json& token = part(file, "eos_token");
  if (token.is_object()) return string_member(token, "content", config.string());
  return json_parts::text(file, "eos_token", "", config.string());
}

}  // namespace

std::string_view usual_end_token(size_t i) {
  constexpr std::string_view kUsual[] = {"<|endoftext|>",   "</s>",
                                         "<|end_of_text|>", "<eos>",
                                         "<|eos|>",         "<｜end▁of▁sentence｜>"};  // U+FF5C and U+2581
  return i < std::size(kUsual) ? kUsual[i] : std::string_view();
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                const std::string& end_token) {
  return std::make_unique<JsonTokenizer>(parse_json(text, name), name, end_token);
}

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path) {
  return parse_tokenizer_json(read_file(path, kMaxFile), path, end_token_beside(path));
}

}  // namespace moesaic
