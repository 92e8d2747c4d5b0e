#include "bench/overlap.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

TEST(Overlap, CountsWhatRunsAloneAndWhatIsHidden) {
  // Compute 0-4 and 6-9; collectives 1-2 (hidden), 3-7 (exposed 4-6) and 5-8 beside it; nothing 9-10; collective 10-11 alone.
  const Overlap o =
      overlap_of({{6, 9, false}, {3, 7, true}, {0, 4, false}, {1, 2, true}, {10, 11, true}, {5, 8, true}});
  EXPECT_DOUBLE_EQ(o.busy, 10);
  EXPECT_DOUBLE_EQ(o.span, 11);
  EXPECT_DOUBLE_EQ(o.comm, 1 + 5 + 1);
  EXPECT_DOUBLE_EQ(o.exposed, 2 + 1);
}

TEST(Overlap, TouchingIntervalsOfOneKindAreOne) {
  const Overlap o = overlap_of({{0, 1, true}, {1, 2, true}, {0, 1, false}});
  EXPECT_DOUBLE_EQ(o.comm, 2);
  EXPECT_DOUBLE_EQ(o.exposed, 1);
  EXPECT_DOUBLE_EQ(o.busy, 2);
}

TEST(Overlap, NothingIsNothing) {
  const Overlap o = overlap_of({});
  EXPECT_EQ(o.span + o.busy + o.comm + o.exposed, 0);
}

}  // namespace
}  // namespace moesaic
