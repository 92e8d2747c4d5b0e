#include "data/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

int32_t id_of(const Vocabulary& vocabulary, std::string_view token) {
  const auto entry = vocabulary.find(token);
  return entry == vocabulary.end() ? -1 : entry->second;
}

std::string one_byte(int byte) {
  return std::string(1, static_cast<char>(byte));
}

}  // namespace

bool BpeModel::has_all_bytes(const Vocabulary& vocabulary) {
  for (int b = 0; b < 256; ++b)
    if (id_of(vocabulary, byte_alphabet::write(one_byte(b))) < 0) return false;
  return true;
}

BpeModel::BpeModel(const Vocabulary& vocabulary, const Merges& merges, const BpeOptions& options,
                   const std::string& where)
    : merges_(merges.size()), options_(options) {
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    const auto token = [&](const std::string& text) {
      const int32_t id = id_of(vocabulary, text);
      require<IoError>(id >= 0, "{}: merge {} needs the token \"{}\", which the vocabulary lacks", where, i,
                       text);
      return id;
    };
    const int32_t from = token(left), with = token(right);
    merges_.set(from, with, {static_cast<int32_t>(i), token(left + right)});
    cut_ = cut_ && !joins_words(left, right);
  }
  // A space that is unknown could be fused with what stands before it.
  cut_ = cut_ && !options.byte_level && !options.ignore_merges && id_of(vocabulary, kSpaceMark) >= 0;
  if (!options.byte_level) {
    vocabulary_ = vocabulary;
    for (int b = 0; b < 256; ++b)
      bytes_[static_cast<size_t>(b)] = id_of(vocabulary, fmt::format("<0x{:02X}>", b));
    return;
  }
  MOESAIC_CHECK(has_all_bytes(vocabulary));
  for (const auto& [token, id] : vocabulary)
    if (const auto bytes = byte_alphabet::read(token)) vocabulary_.emplace(*bytes, id);
  for (int b = 0; b < 256; ++b) bytes_[static_cast<size_t>(b)] = id_of(vocabulary_, one_byte(b));
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& ids, WordScratch& scratch) const {
  if (!cut_) return encode_word(piece, ids, scratch);
  for_each_word(piece, [&](std::string_view word) { encode_word(word, ids, scratch); });
}

void BpeModel::encode_word(std::string_view word, std::vector<int32_t>& ids, WordScratch& scratch) const {
  scratch.append(word, ids, [&]() -> const std::vector<int32_t>& {
    auto& symbols = scratch.symbols;
    symbols.clear();
    const int32_t whole = options_.ignore_merges ? id_of(vocabulary_, word) : -1;
    if (whole >= 0) {
      symbols.push_back(whole);
    } else {
      split(word, symbols);
      merges_.apply(symbols, scratch.merge);
    }
    return symbols;
  });
}

void BpeModel::split(std::string_view word, std::vector<int32_t>& symbols) const {
  const auto byte_token = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (options_.byte_level) {
    for (const char byte : word) symbols.push_back(byte_token(byte));
    return;
  }
  bool unknown = false;  // an unknown token is due; byte tokens overtake it, as they do in the original
  for (size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, utf8::character_at(word, at).length);
    at += character.size();
    const int32_t id = id_of(vocabulary_, character);
    if (id >= 0) {
      if (unknown) symbols.push_back(*options_.unk);
      unknown = false;
      symbols.push_back(id);
    } else if (options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                                     [&](char byte) { return byte_token(byte) >= 0; })) {
      for (const char byte : character) symbols.push_back(byte_token(byte));
    } else if (options_.unk) {
      if (unknown && !options_.fuse_unk) symbols.push_back(*options_.unk);
      unknown = true;
    }
  }
  if (unknown) symbols.push_back(*options_.unk);
}

}  // namespace moesaic
