#pragma once
// Few test cases that still meet every pair of option values: a covering array, by a deterministic greedy search.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "base/rng.h"

namespace moesaic::test {

using OptionRow = std::vector<int>;  // [option] -> index of its value

/// A random row that is allowed, with the values of `fixed` that are not -1; empty when none is found.
inline OptionRow random_row(const std::vector<int>& sizes, const OptionRow& fixed,
                            const std::function<bool(const OptionRow&)>& allowed, uint64_t seed) {
  constexpr uint64_t kTries = 2000;
  OptionRow row(sizes.size());
  for (uint64_t attempt = 0; attempt < kTries; ++attempt) {
    for (size_t i = 0; i < sizes.size(); ++i)
      row[i] = fixed[i] >= 0
                   ? fixed[i]
                   : static_cast<int>(random_below(static_cast<uint64_t>(sizes[i]), seed, i, attempt));
    if (allowed(row)) return row;
  }
  return {};
}

/// Rows in which every pair of values of two options occurs that some allowed row can hold. `sizes`: number of values of
/// each option. Another `start` gives other rows.
inline std::vector<OptionRow> pairwise(const std::vector<int>& sizes,
                                       const std::function<bool(const OptionRow&)>& allowed,
                                       uint64_t start = 1) {
  using Pair = std::array<int, 4>;  // option, value, option, value
  std::set<Pair> open;
  const int count = static_cast<int>(sizes.size());
  for (int i = 0; i < count; ++i)
    for (int j = i + 1; j < count; ++j)
      for (int a = 0; a < sizes[static_cast<size_t>(i)]; ++a)
        for (int b = 0; b < sizes[static_cast<size_t>(j)]; ++b) open.insert({i, a, j, b});
  const auto pairs_of = [&](const OptionRow& row) {
    std::vector<Pair> pairs;
    for (int i = 0; i < count; ++i)
      for (int j = i + 1; j < count; ++j)
        if (const Pair p{i, row[static_cast<size_t>(i)], j, row[static_cast<size_t>(j)]}; open.count(p))
          pairs.push_back(p);
    return pairs;
  };
  std::vector<OptionRow> rows;
  for (uint64_t seed = start; !open.empty(); ++seed) {
    const Pair first = *open.begin();
    OptionRow fixed(sizes.size(), -1), best;
    fixed[static_cast<size_t>(first[0])] = first[1];
    fixed[static_cast<size_t>(first[2])] = first[3];
    size_t most = 0;
    for (uint64_t candidate = 0; candidate < 30; ++candidate) {
      const OptionRow row = random_row(sizes, fixed, allowed, 1000 * seed + candidate);
      if (row.empty()) break;  // the options exclude each other
      if (const size_t covered = pairs_of(row).size(); covered > most) most = covered, best = row;
    }
    if (best.empty()) {
      open.erase(first);
      continue;
    }
    for (const Pair& p : pairs_of(best)) open.erase(p);
    rows.push_back(best);
  }
  return rows;
}

}  // namespace moesaic::test
