#include "comm/rank_status.h"

#include <fmt/core.h>

#include <algorithm>

namespace moesaic {
namespace {

constexpr size_t kMaxKinds = 8, kMaxRanges = 16;

std::string in_brackets(const RankStatus& status) {
  return fmt::format("({}last operation: {})", status.step < 0 ? "" : fmt::format("step {}, ", status.step),
                     status.operation);
}

/// "0-2, 5"; `ranks` ascend.
std::string ranges(const std::vector<int64_t>& ranks) {
  std::string text;
  size_t count = 0;
  for (size_t i = 0; i < ranks.size(); ++count) {
    if (count == kMaxRanges) return text + ", ...";
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (count > 0) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::string name_ranks(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", ranges(ranks));
}

std::string describe(int64_t rank, const RankStatus& status) {
  return fmt::format("rank {} {}", rank, in_brackets(status));
}

std::string describe(const std::vector<int64_t>& ranks, const std::vector<RankStatus>& statuses) {
  struct Kind {
    RankStatus status;
    std::vector<int64_t> ranks;
  };
  std::vector<Kind> kinds;
  for (int64_t rank : ranks) {
    const RankStatus& status = statuses[static_cast<size_t>(rank)];
    auto at =
        std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.status == status; });
    if (at == kinds.end()) at = kinds.insert(at, {status, {}});
    at->ranks.push_back(rank);
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.ranks.size() > b.ranks.size(); });
  std::string text;
  size_t told = 0;
  for (size_t i = 0; i < std::min(kinds.size(), kMaxKinds); ++i) {
    if (i > 0) text += ", ";
    text += fmt::format("{} {}", name_ranks(kinds[i].ranks), in_brackets(kinds[i].status));
    told += kinds[i].ranks.size();
  }
  if (told < ranks.size()) text += fmt::format(" and {} others", ranks.size() - told);
  return text;
}

}  // namespace moesaic
