#include "data/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace moesaic {
namespace {

constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
constexpr size_t kFew = 48;  // symbols, up to which looking at all of them beats a heap

}  // namespace

MergeTable::MergeTable(size_t max_merges)
    : entries_(std::bit_ceil(2 * max_merges + 2)),
      mask_(entries_.size() - 1),
      shift_(64 - std::countr_zero(entries_.size())) {}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  MOESAIC_CHECK(left >= 0 && right >= 0 && merge.rank >= 0 && merge.rank < kNone);
  const uint64_t key = key_of(left, right);
  size_t slot = slot_of(key);
  while (entries_[slot].key != key && entries_[slot].key != kEmpty) slot = (slot + 1) & mask_;
  entries_[slot] = {key, merge};
}

void MergeTable::apply(std::vector<int32_t>& symbols, Scratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kFew) {
    apply_few(symbols, scratch);
  } else {
    apply_many(symbols, scratch);
  }
}

void MergeTable::apply_few(std::vector<int32_t>& symbols, Scratch& scratch) const {
  auto& [ranks, results, nodes, heap] = scratch;
  const auto look = [&](size_t i) {
    const Merge* merge = find(symbols[i], symbols[i + 1]);
    ranks[i] = merge ? merge->rank : kNone;
    results[i] = merge ? merge->result : -1;
  };
  size_t pairs = symbols.size() - 1;
  ranks.resize(pairs);
  results.resize(pairs);
  for (size_t i = 0; i < pairs; ++i) look(i);
  while (pairs > 0) {
    size_t best = 0;
    for (size_t i = 1; i < pairs; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNone) break;
    symbols[best] = results[best];
    const auto erase = [&](std::vector<int32_t>& row, size_t at) {
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
    };
    erase(symbols, best + 1);
    --pairs;
    if (best < pairs) {  // the pair to the right begins here now
      erase(ranks, best);
      erase(results, best);
      look(best);
    }
    if (best > 0) look(best - 1);
  }
}

void MergeTable::apply_many(std::vector<int32_t>& symbols, Scratch& scratch) const {
  auto& [ranks, results, nodes, heap] = scratch;
  using Candidate = Scratch::Candidate;
  const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
  const auto candidate = [&](int32_t left, int32_t right, size_t at) -> std::optional<Candidate> {
    const Merge* merge = find(left, right);
    if (!merge) return std::nullopt;
    return Candidate{uint64_t(merge->rank) << 32 | at, left, right};
  };
  const auto n = static_cast<int32_t>(symbols.size());
  nodes.resize(symbols.size());
  heap.clear();
  for (int32_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    nodes[at] = {symbols[at], i - 1, i + 1 < n ? i + 1 : -1};
    if (i + 1 < n)
      if (const auto found = candidate(symbols[at], symbols[at + 1], at)) heap.push_back(*found);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t left) {
    if (left < 0) return;
    const auto& node = nodes[static_cast<size_t>(left)];
    if (node.next < 0) return;
    if (const auto found =
            candidate(node.symbol, nodes[static_cast<size_t>(node.next)].symbol, static_cast<size_t>(left))) {
      heap.push_back(*found);
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(top.order & 0xFFFFFFFF);
    auto& left = nodes[static_cast<size_t>(at)];
    // Symbols only grow, so a pair that changed since is not the same pair any more.
    if (left.symbol != top.left || left.next < 0) continue;
    auto& right = nodes[static_cast<size_t>(left.next)];
    if (right.symbol != top.right) continue;
    left.symbol = find(top.left, top.right)->result;
    left.next = right.next;
    right.symbol = -1;
    if (left.next >= 0) nodes[static_cast<size_t>(left.next)].previous = at;
    push(left.previous);
    push(at);
  }
  symbols.clear();
  for (int32_t i = 0; i >= 0; i = nodes[static_cast<size_t>(i)].next)
    symbols.push_back(nodes[static_cast<size_t>(i)].symbol);
}

}  // namespace moesaic
