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
#include "data/blend.h"
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

/// The data of a run: one token file, or a blend of several (config/data_blend.h). Ranks may share one loader or have one
/// each: it holds no position, and its methods are const.
class Loader {
 public:
  /// Opens the files of data.train and, if named, data.valid; otherwise the last valid_fraction of the tokens of each
  /// training file is held out (0: no held-out samples). Throws IoError for damaged files, ConfigError where a part is
  /// shorter than one sample.
  Loader(const DataConfig& data, int64_t seq_len, int64_t vocab, uint64_t seed);

  /// Token files that are blended.
  int64_t num_sets() const { return std::ssize(sets_); }
  /// Samples of one epoch of a set, or of one epoch of all sets.
  int64_t num_train_samples(int64_t set) const { return sets_[static_cast<size_t>(set)].num_samples(); }
  int64_t num_train_samples() const;
  int64_t num_valid_samples() const { return valid_starts_.back(); }

  /// Where a position (>= 0) of the run lies: which set, which of its epochs, which sample of the set.
  struct Origin {
    int64_t set, epoch, sample;
    bool operator==(const Origin&) const = default;
  };
  /// Each set walks epochs of its own, every one in a new order (sampler.h); the blend says whose turn it is (blend.h).
  Origin origin(int64_t position) const;

  /// The sequences at these positions of the run, in that order.
  Batch train(std::span<const int64_t> positions) const;
  /// These held-out samples (>= 0). Where several sets hold out a tail, their samples are numbered in a fixed shuffled
  /// order, so that the first ones are a fair choice from all, and each counts once. One past the last gives a row of
  /// token 0 without a counted target, so that every rank can do the same number of batches.
  Batch valid(std::span<const int64_t> samples) const;

 private:
  int64_t seq_len_;
  std::vector<SampleSet> sets_, valid_;
  std::vector<int64_t> valid_starts_{
      0};                        // [valid_ + 1] number of the first held-out sample of each, unshuffled
  std::vector<Sampler> orders_;  // [sets_]
  std::optional<Sampler> valid_order_;  // of several
  std::optional<Blend> blend_;
};

}  // namespace moesaic
