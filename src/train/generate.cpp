#include "train/generate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "data/tokenizer/stream_decoder.h"
#include "train/initial_weights.h"
#include "train/run_checks.h"

namespace moesaic {
namespace {

/// Index of a token drawn from softmax(logits / temperature) over the first `vocab` ids.
int32_t draw(const std::vector<float>& logits, size_t vocab, double temperature, uint64_t seed,
             uint64_t index) {
  const auto best = std::max_element(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocab));
  if (temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<double> weights(vocab);
  double sum = 0;
  for (size_t v = 0; v < vocab; ++v) sum += weights[v] = std::exp((double(logits[v]) - *best) / temperature);
  double left = sum * random_uniform(seed, stream_of("generate"), index);
  for (size_t v = 0; v < vocab; ++v)
    if ((left -= weights[v]) < 0) return static_cast<int32_t>(v);
  return static_cast<int32_t>(best - logits.begin());
}

}  // namespace

void generate(const Config& config, const std::string& checkpoint, const GenerateOptions& options,
              const std::function<void(const std::string&)>& emit) {
  Config alone = config;
  alone.layout.pp = alone.layout.dp = alone.layout.n = alone.layout.e = 1;
  alone.train.micro_batch = alone.train.global_batch = 1;
  const int64_t S = alone.train.seq_len, V = alone.model.vocab;
  const auto tokenizer = open_tokenizer(config.data.tokenizer);
  const int64_t num_ids = tokenizer->vocab_size();  // a model may have more rows than that, for alignment
  require<ConfigError>(V >= num_ids, "the tokenizer {} has {} ids and needs model.vocab >= {}, found {}",
                       tokenizer->name(), num_ids, num_ids, V);
  check_runnable(alone);
  run_ranks(alone.run, 1, [&](Rank& rank) {
    Session session(alone, rank, false);
    load_weights(session, CheckpointReader(checkpoint, Verify::contents));
    std::vector<int32_t> tokens = tokenizer->encode(options.prompt);
    if (tokens.empty()) tokens.push_back(tokenizer->end_of_document());
    StreamDecoder decoder(*tokenizer, tokens);
    std::vector<float> logits(static_cast<size_t>(V));
    for (int64_t i = 0; i < options.num_tokens; ++i) {
      const auto length = std::min<int64_t>(static_cast<int64_t>(tokens.size()), S);
      Batch batch{.num_sequences = 1, .num_counted = 0};
      batch.tokens.assign(tokens.end() - length, tokens.end());
      batch.tokens.resize(static_cast<size_t>(S), 0);  // later positions are not seen by earlier ones
      batch.targets.assign(static_cast<size_t>(S), -1);
      batch.doc_start.assign(static_cast<size_t>(S), 0);
      for (int64_t s = 0; s < S; ++s) batch.positions.push_back(static_cast<int32_t>(s));
      session.feed().send(batch, 0, 0);
      const std::byte* all = session.stage().logits();
      rank.device->fetch(logits.data(), all + (length - 1) * V * 4, V * 4);
      const int32_t next = draw(logits, static_cast<size_t>(num_ids), options.temperature, options.seed,
                                static_cast<uint64_t>(i));
      if (next == tokenizer->end_of_document()) break;
      tokens.push_back(next);
      emit(decoder.push(next));
    }
    emit(decoder.finish());
  });
}

}  // namespace moesaic
