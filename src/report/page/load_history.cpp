#include "report/page/load_history.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moesaic {
void LoadHistory::add(int64_t step, const std::vector<std::vector<double>>& load) {
  if (load.empty() || load.front().empty()) return;
  const size_t layers = load.size(), experts = load.front().size();
  if (layers > kMaxCells || experts > kMaxCells / layers) return;
  if (std::any_of(load.begin(), load.end(), [&](const auto& layer) { return layer.size() != experts; }))
    return;
  if (columns_.empty()) {
    layers_ = layers, experts_ = experts, first_ = step;
  } else if (layers != layers_ || experts != experts_ || step < first_) {
    return;
  }
  while (static_cast<size_t>((step - first_) / width_) >= kMaxColumns) merge_pairs();
  const auto at = static_cast<size_t>((step - first_) / width_);
  if (columns_.size() <= at) columns_.resize(at + 1);
  Column& column = columns_[at];
  column.resize(layers_ * experts_);
  for (size_t l = 0; l < layers; ++l)
    for (size_t e = 0; e < experts; ++e)
      if (load[l][e] > 0) column[l * experts + e] += static_cast<float>(load[l][e]);
}

void LoadHistory::merge_pairs() {
  width_ *= 2;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (i % 2 == 0 || columns_[i / 2].empty()) {
      columns_[i / 2].swap(columns_[i]);
    } else {
      for (size_t k = 0; k < columns_[i].size(); ++k) columns_[i / 2][k] += columns_[i][k];
    }
  }
  columns_.resize((columns_.size() + 1) / 2);
}

std::vector<double> LoadHistory::over_mean(size_t layer, size_t column) const {
  const Column& sums = columns_[column];
  if (sums.empty()) return {};
  const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(layer * experts_);
  std::vector<double> ratios(begin, begin + static_cast<std::ptrdiff_t>(experts_));
  const double mean = std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(experts_);
  if (!(mean > 0)) return {};
  for (double& ratio : ratios) ratio /= mean;
  return ratios;
}

char load_letter(double over_mean) {
  if (!(over_mean >= 0)) return '.';
  if (over_mean == 0) return '0';
  const double quarter = std::clamp(std::round(4 * std::log2(over_mean)), -12.0, 12.0);
  return static_cast<char>('M' + static_cast<int>(quarter));
}

}  // namespace moesaic
