#pragma once
// Which of several sets each sample of a run comes from: a function of one number, so that resuming is knowing the data
// position, and the same for any layout.
#include <cstdint>
#include <span>
#include <vector>

namespace moesaic {

/// At every prefix of p positions each set has given its share of p samples, within less than one sample. The order is a
/// schedule by earliest deadlines of the ideal instants (Baruah et al., "Proportionate progress: a notion of fairness in
/// resource allocation", Algorithmica 1996), with a period that is held as an index. Shares are whole counts per period:
/// exact where the weights are whole multiples of a decimal fraction whose ratios add up to at most kMaxPeriod ("0.7, 0.3":
/// period 10), else rounded to 1 / kMaxPeriod.
class Blend {
 public:
  static constexpr int64_t kMaxPeriod = int64_t{1} << 20;

  struct Place {
    int64_t set = 0;
    int64_t index = 0;  // how many samples that set has given before
    bool operator==(const Place&) const = default;
  };

  /// Requires 1 to 256 weights, each above 0 and finite.
  explicit Blend(std::span<const double> weights);

  int64_t num_sets() const { return static_cast<int64_t>(shares_.size()); }
  /// Samples of set k in one period.
  int64_t share(int64_t set) const { return shares_[static_cast<size_t>(set)]; }
  int64_t period() const { return static_cast<int64_t>(sets_.size()); }
  /// The sample at this position (>= 0) of the run.
  Place at(int64_t position) const;

 private:
  std::vector<int64_t> shares_;
  std::vector<uint8_t> sets_;   // [period]
  std::vector<int64_t> given_;  // [blocks, num_sets] samples given before each block of positions
};

}  // namespace moesaic
