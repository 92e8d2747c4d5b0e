#include "data/tokenizer/sentencepiece.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/pool.h"
#include "data/tokenizer/sentencepiece_file.h"
#include "data/tokenizer/sentencepiece_normalizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/utf8.h"
#include "data/tokenizer/words.h"

namespace moesaic {
namespace {

using Type = SentencePieceFile::Type;

constexpr int64_t kMaxFile = int64_t{64} << 20;
constexpr size_t kMaxText = std::numeric_limits<int32_t>::max() / 4;  // of one encode(), in bytes

std::string_view character_of(std::string_view text, size_t at) {
  return text.substr(at, utf8::character_at(text, at).length);
}

/// Symbols are the ids of normal pieces, and behind them "single" symbols: characters that are no normal piece but
/// part of one (or a piece of another type), so that they can merge. Any other character is -2 - its code point.
class Symbols {
 public:
  explicit Symbols(const SentencePieceFile& file) : first_single_(static_cast<int32_t>(file.pieces.size())) {
    for (int32_t id = 0; id < first_single_; ++id)
      if (const auto& piece = file.pieces[static_cast<size_t>(id)]; piece.type == Type::normal)
        ids_.emplace(piece.text, id);
    for (int32_t id = 0; id < first_single_; ++id) {
      const auto& [text, score, type] = file.pieces[static_cast<size_t>(id)];
      if (type == Type::normal) {
        for (size_t at = 0; at < text.size(); at += character_of(text, at).size())
          add_single(character_of(text, at), file.unk_id);
      } else if (type != Type::user_defined && character_of(text, 0) == text) {
        add_single(text, id);
      }
    }
  }

  /// Of a piece or a character; -1 if there is none.
  int32_t find(std::string_view text) const {
    const auto entry = ids_.find(text);
    return entry == ids_.end() ? -1 : entry->second;
  }
  int32_t of_character(std::string_view character) const {
    const int32_t symbol = find(character);
    return symbol >= 0 ? symbol : -2 - static_cast<int32_t>(utf8::character_at(character, 0).code);
  }
  /// The id that a symbol is written as; unk for a character that is no piece.
  int32_t id_of(int32_t symbol, int32_t unk) const {
    if (symbol < 0) return unk;
    return symbol < first_single_ ? symbol : singles_[static_cast<size_t>(symbol - first_single_)].id;
  }
  /// The text of a symbol that is written as unk.
  std::string text_of(int32_t symbol) const {
    if (symbol >= first_single_) return singles_[static_cast<size_t>(symbol - first_single_)].text;
    std::string text;
    utf8::append(text, static_cast<char32_t>(-2 - symbol));
    return text;
  }

 private:
  struct Single {
    std::string text;
    int32_t id;
  };
  void add_single(std::string_view text, int32_t id) {
    const int32_t symbol = first_single_ + static_cast<int32_t>(singles_.size());
    const auto [entry, is_new] = ids_.try_emplace(std::string(text), symbol);
    if (is_new) {
      singles_.push_back({std::string(text), id});
    } else if (entry->second >= first_single_) {
      Single& single = singles_[static_cast<size_t>(entry->second - first_single_)];
      single.id = std::max(single.id, id);
    }
  }

  Vocabulary ids_;
  std::vector<Single> singles_;
  int32_t first_single_;
};

/// The pairs of symbols whose texts make a normal piece; the piece of the highest score has the lowest rank.
struct PieceMerges {
  struct Pair {
    int32_t left, right, result;
  };
  std::vector<Pair> pairs;
  std::vector<int32_t> ranks;  // by id
  bool joins_words = false;

  PieceMerges(const SentencePieceFile& file, const Symbols& symbols) : ranks(file.pieces.size()) {
    std::map<float, int32_t, std::greater<>> rank_of;
    for (const auto& piece : file.pieces) rank_of.emplace(piece.score, 0);
    int32_t next = 0;
    for (auto& [score, rank] : rank_of) rank = next++;
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const auto& piece = file.pieces[id];
      ranks[id] = rank_of.at(piece.score);
      if (piece.type == Type::normal) add_pairs(piece.text, static_cast<int32_t>(id), symbols);
    }
  }

 private:
  void add_pairs(std::string_view text, int32_t id, const Symbols& symbols) {
    for (size_t at = character_of(text, 0).size(); at < text.size(); at += character_of(text, at).size()) {
      const int32_t left = symbols.find(text.substr(0, at)), right = symbols.find(text.substr(at));
      if (left < 0 || right < 0) continue;
      pairs.push_back({left, right, id});
      joins_words = joins_words || moesaic::joins_words(text.substr(0, at), text.substr(at));
    }
  }
};

MergeTable table_of(const PieceMerges& merges) {
  MergeTable table(merges.pairs.size());
  for (const auto& [left, right, result] : merges.pairs)
    table.set(left, right, {merges.ranks[static_cast<size_t>(result)], result});
  return table;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// symbols and merges: of this file.
  SentencePieceTokenizer(std::unique_ptr<const SentencePieceFile> file, Symbols symbols,
                         const PieceMerges& merges, std::string name)
      : name_(std::move(name)),
        file_(std::move(file)),
        symbols_(std::move(symbols)),
        merges_(table_of(merges)),
        user_defined_(user_defined_of(*file_)),
        normalizer_(*file_, user_defined_, name_),
        // A space that is unknown could be fused with what stands before it.
        cut_(!merges.joins_words && is_piece(symbols_.find(kSpaceMark))),
        byte_of_(file_->pieces.size(), -1),
        byte_ids_(256, -1) {
    for (int b = 0; b < 256; ++b) {
      const std::string text = byte_piece(b);
      for (size_t id = 0; id < file_->pieces.size(); ++id) {
        const auto& piece = file_->pieces[id];
        if (piece.type != Type::byte || piece.text != text) continue;
        byte_of_[id] = b;
        byte_ids_[static_cast<size_t>(b)] = static_cast<int32_t>(id);
      }
    }
    end_of_document_ = find_end();
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(file_->pieces.size()); }
  int32_t end_of_document() const override { return end_of_document_; }
  std::string name() const override { return name_; }

  std::vector<int32_t> encode(std::string_view text) const override {
    require<ConfigError>(text.size() <= kMaxText,
                         "a text of {} bytes is too long to encode at once; at most {}", text.size(),
                         kMaxText);
    const bool valid = utf8::valid_length(text) == text.size();
    const std::string normalized = normalizer_.apply(valid ? std::string(text) : utf8::replace_invalid(text));
    const std::string_view whole = normalized;
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3);
    const auto scratch = scratch_.take();
    size_t at = 0;
    while (const auto match = user_defined_.find(whole, at)) {
      encode_part(whole.substr(at, match->begin - at), ids, *scratch);
      ids.push_back(match->id);
      at = match->end;
    }
    encode_part(whole.substr(at), ids, *scratch);
    return ids;
  }

  std::string decode(std::span<const int32_t> ids) const override {
    const bool prefixed = file_->add_dummy_prefix || file_->remove_extra_whitespaces;
    std::string text;
    bool at_start = true;  // a space mark that comes now is the one that encoding put there
    bool mark_was_dropped = false;
    for (const int32_t id : ids) {
      require<ConfigError>(id >= 0 && id < vocab_size(), "{} has ids 0 to {}, not {}", name_,
                           vocab_size() - 1, id);
      const auto& [piece, score, type] = file_->pieces[static_cast<size_t>(id)];
      if (type == Type::byte) {
        if (const int32_t byte = byte_of_[static_cast<size_t>(id)]; byte >= 0)
          text += static_cast<char>(byte);
        continue;
      }
      if (mark_was_dropped || !text.empty()) at_start = false;
      mark_was_dropped = false;
      if (type == Type::control) continue;
      if (type == Type::unknown) {
        text += file_->unk_surface;
        continue;
      }
      std::string_view left = piece;
      if (at_start && prefixed && left.starts_with(kSpaceMark)) {
        left.remove_prefix(kSpaceMark.size());
        mark_was_dropped = !file_->remove_extra_whitespaces;
      }
      append_with_spaces(text, left);
    }
    return text;
  }

 private:
  static TokenTrie user_defined_of(const SentencePieceFile& file) {
    TokenTrie trie;
    for (size_t id = 0; id < file.pieces.size(); ++id)
      if (file.pieces[id].type == Type::user_defined)
        trie.add(file.pieces[id].text, static_cast<int32_t>(id));
    return trie;
  }

  bool is_piece(int32_t symbol) const { return symbol >= 0 && symbol < vocab_size(); }

  int32_t find_end() const {
    if (file_->end_id >= 0) return file_->end_id;
    for (size_t i = 0; !usual_end_token(i).empty(); ++i)
      for (size_t id = 0; id < file_->pieces.size(); ++id)
        if (file_->pieces[id].text == usual_end_token(i)) return static_cast<int32_t>(id);
    fail<ConfigError>("{} has no piece that ends a document: train it with an end of sentence (eos_id)",
                      name_);
  }

  void encode_part(std::string_view text, std::vector<int32_t>& ids, WordScratch& scratch) const {
    if (text.empty()) return;
    if (!cut_) return encode_word(text, ids, scratch);
    for_each_word(text, [&](std::string_view word) { encode_word(word, ids, scratch); });
  }

  void encode_word(std::string_view word, std::vector<int32_t>& ids, WordScratch& scratch) const {
    scratch.append(word, ids, [&]() -> const std::vector<int32_t>& { return merged_ids(word, scratch); });
  }

  const std::vector<int32_t>& merged_ids(std::string_view word, WordScratch& scratch) const {
    auto& symbols = scratch.symbols;
    symbols.clear();
    for (size_t at = 0; at < word.size();) {
      const std::string_view character = character_of(word, at);
      symbols.push_back(symbols_.of_character(character));
      at += character.size();
    }
    merges_.apply(symbols, scratch.merge);
    scratch.ids.clear();
    bool after_unknown = false;
    for (const int32_t symbol : symbols) {
      const int32_t id = symbols_.id_of(symbol, file_->unk_id);
      const bool unknown = id == file_->unk_id;
      if (unknown && file_->byte_fallback) {
        for (const char byte : symbols_.text_of(symbol))
          scratch.ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      } else if (!unknown || !after_unknown) {  // unknown neighbours are one
        scratch.ids.push_back(id);
      }
      after_unknown = unknown;
    }
    return scratch.ids;
  }

  static void append_with_spaces(std::string& text, std::string_view piece) {
    size_t at = 0;
    for (size_t mark = piece.find(kSpaceMark); mark != std::string_view::npos;
         mark = piece.find(kSpaceMark, at)) {
      text.append(piece.substr(at, mark - at)).append(" ");
      at = mark + kSpaceMark.size();
    }
    text.append(piece.substr(at));
  }

  std::string name_;
  std::unique_ptr<const SentencePieceFile> file_;
  Symbols symbols_;
  MergeTable merges_;
  TokenTrie user_defined_;
  SentencePieceNormalizer normalizer_;
  bool cut_;                       // text may be cut into words
  std::vector<int32_t> byte_of_;   // by id: the byte of a byte piece, or -1
  std::vector<int32_t> byte_ids_;  // by byte
  int32_t end_of_document_ = 0;
  mutable Pool<WordScratch> scratch_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& name) {
  auto file = std::make_unique<const SentencePieceFile>(parse_sentencepiece_file(bytes, name));
  Symbols symbols(*file);
  const PieceMerges merges(*file, symbols);
  return std::make_unique<SentencePieceTokenizer>(std::move(file), std::move(symbols), merges, name);
}

std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path) {
  return parse_sentencepiece(read_file(path, kMaxFile), path);
}

}  // namespace moesaic
