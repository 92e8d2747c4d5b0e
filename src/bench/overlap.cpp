#include "bench/overlap.h"

#include <algorithm>

namespace moesaic {

Overlap overlap_of(const std::vector<Interval>& intervals) {
  struct Edge {
    double at;
    bool comm;
    int change;
  };
  std::vector<Edge> edges;
  for (const Interval& i : intervals) {
    edges.push_back({i.begin, i.comm, 1});
    edges.push_back({i.end, i.comm, -1});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  Overlap sums;
  if (!edges.empty()) sums.span = edges.back().at - edges.front().at;
  int running[2] = {0, 0};  // other ops, collectives
  for (size_t i = 0; i < edges.size(); ++i) {
    const double passed = i == 0 ? 0 : edges[i].at - edges[i - 1].at;
    if (running[0] + running[1] > 0) sums.busy += passed;
    if (running[1] > 0) sums.comm += passed;
    if (running[1] > 0 && running[0] == 0) sums.exposed += passed;
    running[edges[i].comm] += edges[i].change;
  }
  return sums;
}

}  // namespace moesaic
