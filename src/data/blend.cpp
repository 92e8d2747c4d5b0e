#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace moesaic {
namespace {

constexpr int64_t kBlock = 1024;  // positions between two marks

/// The smallest whole numbers in the ratio of the weights, if a power of ten makes the weights whole and the sum is within
/// the bound; else nothing.
std::vector<int64_t> whole_ratio(std::span<const double> weights) {
  for (double scale = 1; scale <= 1e12; scale *= 10) {
    std::vector<int64_t> whole;
    bool is_whole = true;
    for (const double weight : weights) {
      const double scaled = weight * scale, rounded = std::round(scaled);
      is_whole = is_whole && rounded >= 1 && rounded < 1e15 && std::abs(scaled - rounded) <= 1e-12 * scaled;
      if (!is_whole) break;
      whole.push_back(static_cast<int64_t>(rounded));
    }
    if (!is_whole) continue;
    int64_t divisor = 0;
    for (const int64_t w : whole) divisor = std::gcd(divisor, w);
    for (int64_t& w : whole) w /= divisor;
    return whole;
  }
  return {};
}

/// Whole shares of kMaxPeriod, by largest remainder, at least 1 each.
std::vector<int64_t> rounded_ratio(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto free = static_cast<double>(Blend::kMaxPeriod - std::ssize(weights));
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  for (size_t k = 0; k < weights.size(); ++k) {
    const double ideal = std::max(0.0, weights[k] / sum * static_cast<double>(Blend::kMaxPeriod) - 1);
    shares.push_back(1 + static_cast<int64_t>(std::min(ideal, free)));
    remainders.emplace_back(ideal - std::floor(ideal), k);
  }
  // Largest remainders are rounded up; where sets of tiny weight were raised to 1, the largest sets give.
  int64_t left = Blend::kMaxPeriod - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  std::sort(remainders.rbegin(), remainders.rend());
  for (size_t i = 0; left > 0; i = (i + 1) % remainders.size(), --left) ++shares[remainders[i].second];
  for (; left < 0; ++left) --*std::max_element(shares.begin(), shares.end());
  return shares;
}

std::vector<int64_t> whole_shares(std::span<const double> weights) {
  auto shares = whole_ratio(weights);
  const bool fits = !shares.empty() && std::all_of(shares.begin(), shares.end(), [](int64_t s) {
    return s <= Blend::kMaxPeriod;
  }) && std::accumulate(shares.begin(), shares.end(), int64_t{0}) <= Blend::kMaxPeriod;
  return fits ? shares : rounded_ratio(weights);
}

}  // namespace

Blend::Blend(std::span<const double> weights) {
  MOESAIC_CHECK(!weights.empty() && weights.size() <= 256, "{} sets", weights.size());
  for (const double weight : weights) MOESAIC_CHECK(std::isfinite(weight) && weight > 0, "weight {}", weight);
  shares_ = whole_shares(weights);
  const int64_t period = std::accumulate(shares_.begin(), shares_.end(), int64_t{0});
  sets_.reserve(static_cast<size_t>(period));
  // Sample j of a set may come at positions from release = floor(j W / w) on and before deadline = ceil((j+1) W / w), W the
  // period and w its share. Serving the earliest deadline among the released meets every deadline, and so keeps each count
  // between floor(w p / W) and ceil(w p / W).
  std::vector<int64_t> given(shares_.size(), 0), release(shares_.size(), 0), deadline(shares_.size());
  const auto set_times = [&](size_t k) {
    release[k] = given[k] * period / shares_[k];
    deadline[k] = ((given[k] + 1) * period + shares_[k] - 1) / shares_[k];
  };
  for (size_t k = 0; k < shares_.size(); ++k) set_times(k);
  for (int64_t position = 0; position < period; ++position) {
    if (position % kBlock == 0) given_.insert(given_.end(), given.begin(), given.end());
    size_t best = shares_.size();
    for (size_t k = 0; k < shares_.size(); ++k)
      if (release[k] <= position && (best == shares_.size() || deadline[k] < deadline[best])) best = k;
    MOESAIC_CHECK(best < shares_.size() && deadline[best] > position, "position {}", position);
    sets_.push_back(static_cast<uint8_t>(best));
    ++given[best];
    set_times(best);
  }
}

Blend::Place Blend::at(int64_t position) const {
  MOESAIC_CHECK(position >= 0, "position {}", position);
  const int64_t round = position / period(), place = position % period(), block = place / kBlock;
  const uint8_t set = sets_[static_cast<size_t>(place)];
  const auto since = std::count(sets_.begin() + block * kBlock, sets_.begin() + place, set);
  return {set, round * shares_[set] + given_[static_cast<size_t>(block) * shares_.size() + set] + since};
}

}  // namespace moesaic
