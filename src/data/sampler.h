#pragma once
// The order in which a run sees its samples: shuffled anew in each epoch, without an array, and a function of
// one number. Data position = how many samples the run has consumed: step * global_batch + place in the
// batch. So any layout reads the same samples in a step, and resuming is knowing the step.
#include <cstdint>

namespace moesaic {

/// A stateless shuffle: position -> sample. Within epoch k, positions [k*N, (k+1)*N) visit each of the N
/// samples once. The permutation is a Feistel network keyed by (seed, epoch), walked until it lands below N
/// (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Sampler {
 public:
  /// Requires num_samples >= 1.
  Sampler(int64_t num_samples, uint64_t seed);

  int64_t num_samples() const { return num_samples_; }
  int64_t epoch_of(int64_t position) const { return position / num_samples_; }
  /// The sample, in [0, num_samples), at this position of the run (>= 0).
  int64_t sample_at(int64_t position) const;

 private:
  int64_t num_samples_;
  uint64_t seed_;
  int half_bits_;  // the network permutes [0, 2^(2*half_bits)), at most four times num_samples
};

}  // namespace moesaic
