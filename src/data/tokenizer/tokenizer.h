#pragma once
// Text to token ids and back. Whatever file a tokenizer comes from, it is used through this one interface; what
// is read, and what becomes of broken UTF-8, stands in docs/formats/tokenizer.md.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// Immutable once opened: threads may share one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// V: ids are in [0, vocab_size). Ids in between may be unused.
  virtual int64_t vocab_size() const = 0;
  /// The ids of text: no begin, no end. Bytes that are not UTF-8 count as U+FFFD (except to "bytes").
  /// Thread-safe.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The bytes of ids; special tokens give none. ConfigError for an id outside [0, vocab_size). The result may
  /// begin or end inside a UTF-8 sequence, if the ids do.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id that is put after each document.
  virtual int32_t end_of_document() const = 0;
  /// "bytes", or the file that it was read from.
  virtual std::string name() const = 0;
};

/// spec: "bytes", or a path: tokenizer.json, a SentencePiece .model, or a folder that holds one of them
/// (tokenizer.json first). IoError for a file that is missing or damaged; ConfigError for one that asks for what
/// is not supported, by name.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec);

}  // namespace moesaic
