#pragma once
// Token files: "<prefix>.bin" holds ids, "<prefix>.idx" says where sequences and documents begin. The format
// is Megatron-LM's indexed dataset, version 1 (docs/formats/token_file.md), so files go both ways.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace moesaic {

/// A token file opened for reading, as one stream of tokens cut into documents. Every field of the index is checked on
/// opening, nothing but what is asked for is held in memory, and all methods may be called from many threads. If others
/// cut or change the files meanwhile, reading throws IoError.
class TokenFile {
 public:
  /// Throws IoError if either file is missing or damaged, or if the two do not belong together.
  explicit TokenFile(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  /// Type of the ids in the file: u8, u16, i32 or i64.
  DType dtype() const { return dtype_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return num_documents_; }

  /// Tokens [begin, begin + out.size()), which must lie in the file. ConfigError names the first id outside
  /// [0, vocab).
  void read(int64_t begin, std::span<int32_t> out, int64_t vocab) const;
  /// First token of document d, d in [0, num_documents]; the last value is num_tokens. Documents may be
  /// empty.
  int64_t document_start(int64_t d) const;
  /// The tokens in (begin, end] that start a document, ascending, each once; num_tokens counts as such a
  /// start.
  std::vector<int64_t> document_starts(int64_t begin, int64_t end) const;

 private:
  void check_header();
  void check_sequences();
  void check_documents();

  std::string prefix_;
  InputFile index_, ids_;
  DType dtype_ = DType::u16;
  int64_t num_sequences_ = 0, num_documents_ = 0, num_tokens_ = 0;
  int64_t pointers_at_ = 0, documents_at_ = 0;  // byte offsets in the index
};

/// Writes a token file of any length; 4 bytes per document are held in memory. Neither file
/// is there before finish(), and an older pair of that name stays until then.
class TokenFileWriter {
 public:
  /// dtype: u8, u16, i32 or i64. A document of more than max_sequence tokens becomes several sequences; the format counts
  /// the tokens of one in 31 bits.
  TokenFileWriter(std::string prefix, DType dtype, int64_t max_sequence = (int64_t{1} << 31) - 1);
  /// Adds ids to the document being written. ConfigError if one does not fit the dtype.
  void append(std::span<const int32_t> ids);
  /// Ends the document being written, which may be empty.
  void end_document();
  /// Publishes both files. Requires that the last document was ended.
  void finish();

 private:
  void end_sequence();

  std::string prefix_;
  DType dtype_;
  int64_t max_sequence_;
  AtomicFile ids_;
  std::vector<std::byte> encoded_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t>
      not_last_;  // sequences that do not end a document: where one has more than max_sequence_ tokens
  int64_t open_tokens_ = 0;  // of the sequence being written
};

}  // namespace moesaic
