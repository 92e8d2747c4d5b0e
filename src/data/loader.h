#pragma once
// From token files to batches. A sample is S+1 consecutive tokens of the file's stream, S of them inputs and
// the same S, one later, targets; samples start every S tokens, so each target is counted once. What is left
// at the end of the stream, less than a sample, is not used. Letters: B sequences, S tokens of each, V
// vocabulary.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/config.h"
#include "data/sampler.h"
#include "data/token_file.h"

namespace moesaic {

/// B sequences. Every array is [B, S], row-major.
struct Batch {
  int64_t num_sequences = 0;       // B
  std::vector<int32_t> tokens;     // in [0, V)
  std::vector<int32_t> targets;    // in [0, V), or -1 where the loss does not count
  std::vector<int32_t> positions;  // in the sequence, or in the document when documents are packed
  std::vector<int32_t>
      doc_start;  // where in the sequence the token's document starts: attention looks no further back
  int64_t num_counted = 0;  // targets that are not -1
};

/// The samples of tokens [begin, end) of a file, in order. With packed_documents a document that starts
/// inside a sample cuts it: positions restart at 0, doc_start moves, and the target before the cut is -1.
class SampleSet {
 public:
  /// Requires 0 <= begin <= end <= file->num_tokens().
  SampleSet(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end, int64_t seq_len, int64_t vocab,
            bool packed_documents);

  /// May be 0.
  int64_t num_samples() const { return num_samples_; }
  /// Appends one sample, in [0, num_samples). ConfigError if an id is outside the vocabulary.
  void append_to(Batch& batch, int64_t sample) const;

 private:
  std::shared_ptr<const TokenFile> file_;
  int64_t begin_, seq_len_, vocab_, num_samples_;
  bool packed_documents_;
};

/// The data of a run. Ranks may share one loader or have one each: it holds no position, and its methods are
/// const.
class Loader {
 public:
  /// Opens data.train and, if named, data.valid; otherwise the last valid_fraction of the training tokens is
  /// held out (0: no held-out samples). Throws IoError for damaged files, ConfigError where a part is shorter
  /// than one sample.
  Loader(const DataConfig& data, int64_t seq_len, int64_t vocab, uint64_t seed);

  /// Samples of one epoch.
  int64_t num_train_samples() const { return train_->num_samples(); }
  int64_t num_valid_samples() const { return valid_ ? valid_->num_samples() : 0; }
  int64_t epoch_of(int64_t position) const { return order_->epoch_of(position); }

  /// The sequences at these positions of the run (>= 0; see sampler.h), in that order.
  Batch train(std::span<const int64_t> positions) const;
  /// These held-out samples (>= 0). One past the last gives a row of token 0 without a counted target, so
  /// that every rank can do the same number of batches.
  Batch valid(std::span<const int64_t> samples) const;

 private:
  int64_t seq_len_;
  std::optional<SampleSet> train_, valid_;
  std::optional<Sampler> order_;
};

}  // namespace moesaic
