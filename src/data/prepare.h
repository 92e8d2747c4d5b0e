#pragma once
// Text to tokens, on all cores: inputs are cut into blocks, blocks are tokenized in parallel, tokens are written in the
// order of the inputs. docs/data.md.
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "data/text_blocks.h"
#include "data/tokenizer/tokenizer.h"

namespace moesaic {

struct PrepareOptions {
  TextFormat format = TextFormat::automatic;
  std::string key = "text";     // jsonl: which member of a line is the document
  bool end_of_document = true;  // put the tokenizer's id for it after each document
  bool skip_broken = false;     // jsonl: pass over lines that are broken instead of stopping
  int64_t num_threads = 0;      // 0 = one per core
};

struct PreparedTokens {
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  int64_t num_bytes = 0;     // of the inputs, decompressed
  int64_t num_broken = 0;    // lines passed over
  std::string first_broken;  // what was wrong with the first of them, with file and line
};

/// Called in between with what has been written so far, and once before the files are published; what it throws ends the
/// work, and then nothing is written.
using PrepareProgress = std::function<void(const PreparedTokens&)>;

/// Writes the documents of `inputs` ("-" is standard input) in order to "<prefix>.bin" and "<prefix>.idx", the same for any
/// number of threads. Ids are stored as u8, u16 or i32, the first that holds the tokenizer's vocabulary. Streams: memory is
/// bounded by the blocks in flight and 4 bytes per document. ConfigError if no input is named; IoError if one cannot be read
/// or a line is broken (naming file and line), and then nothing is written.
PreparedTokens prepare_tokens(std::span<const std::string> inputs, const std::string& prefix,
                              const Tokenizer& tokenizer, const PrepareOptions& options,
                              const PrepareProgress& progress);

}  // namespace moesaic
