#pragma once
// Text from a checkpoint: the prefix is run again for each token; no cache.
#include <functional>
#include <string>

#include "config/config.h"

namespace moesaic {

struct GenerateOptions {
  std::string prompt;
  int64_t num_tokens = 200;
  double temperature = 0.8;  // 0 = always the most likely token
  uint64_t seed = 1;
};

/// Samples `num_tokens` tokens after the prompt on one rank, calling `emit` with the text of each (whole characters);
/// ends early at an end-of-document token. The last train.seq_len tokens are what the model sees. The tokenizer is
/// that of data.tokenizer. Throws ConfigError for a model whose vocabulary is smaller than the tokenizer's.
void generate(const Config& config, const std::string& checkpoint, const GenerateOptions& options,
              const std::function<void(const std::string&)>& emit);

}  // namespace moesaic
