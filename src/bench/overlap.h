#pragma once
// How much of a step's communication is hidden behind other ops, from the times of its ops.
#include <vector>

namespace moesaic {

/// When an op ran, in seconds of any clock. A collective runs from when its stream reaches it until its data has arrived, so
/// waiting for a rank that is late counts as communication.
struct Interval {
  double begin = 0, end = 0;
  bool comm = false;
};

/// Seconds from the first op's begin to the last one's end, and those of them during which at least one op of a kind ran.
struct Overlap {
  double span = 0;
  double busy = 0;     // any op
  double comm = 0;     // a collective
  double exposed = 0;  // a collective and nothing else
};

/// Of one device; intervals may overlap and come in any order.
Overlap overlap_of(const std::vector<Interval>& intervals);

}  // namespace moesaic
