#pragma once
// Expert load over the steps of a run of any length, in bounded memory: columns of equally many steps, merged in pairs
// whenever they become too many.
#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

class LoadHistory {
 public:
  static constexpr size_t kMaxColumns = 160;
  static constexpr size_t kMaxCells = size_t{1} << 18;  // layers * experts: 256 layers of 1024 experts

  /// A step's load, [layers][E] as in metrics.jsonl. Steps ascend. What differs in shape from the first one, or is larger
  /// than kMaxCells, is passed over.
  void add(int64_t step, const std::vector<std::vector<double>>& load);

  bool empty() const { return columns_.empty(); }
  size_t layers() const { return layers_; }
  size_t experts() const { return experts_; }
  /// Steps that the columns cover: [first, first + columns() * width).
  int64_t first() const { return first_; }
  int64_t width() const { return width_; }
  size_t columns() const { return columns_.size(); }

  /// Load of each expert of a layer over the layer's mean in a column: 1 is balanced, E the most, 0 nothing routed. Empty
  /// when there is no data.
  std::vector<double> over_mean(size_t layer, size_t column) const;

 private:
  using Column = std::vector<float>;  // sums [layers * E]; empty: no data
  void merge_pairs();

  size_t layers_ = 0, experts_ = 0;
  int64_t first_ = 0, width_ = 1;
  std::vector<Column> columns_;
};

/// How a ratio to the mean is written in a page: 'A' (1/8 or less) to 'Y' (8 or more), a letter for each quarter of a power
/// of two, 'M' around 1; '0' nothing, '.' no data.
char load_letter(double over_mean);

}  // namespace moesaic
