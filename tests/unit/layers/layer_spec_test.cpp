// What `auto` means: which dispatch where no tuning file says, and which overlap.
#include "layers/layer_spec.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

TEST(ResolveDispatch, AutoIsAllToAllWhileATokenGoesToThreeQuartersOfTheRanksAtMost) {
  const LayoutConfig automatic{.dispatch = Dispatch::automatic};
  struct Case {
    int64_t top_k, e;
    Dispatch expected;
  };
  for (const auto& [top_k, e, expected] :
       {Case{1, 1, Dispatch::ag_rs}, Case{1, 2, Dispatch::a2a}, Case{2, 2, Dispatch::ag_rs},
        Case{3, 4, Dispatch::a2a}, Case{4, 4, Dispatch::ag_rs}, Case{6, 8, Dispatch::a2a},
        Case{7, 8, Dispatch::ag_rs}, Case{8, 8, Dispatch::ag_rs}})
    EXPECT_EQ(resolve_dispatch(automatic, top_k, e), expected) << "K " << top_k << " e " << e;
}

TEST(ResolveDispatch, WhatIsAskedForStays) {
  for (const Dispatch asked : {Dispatch::a2a, Dispatch::ag_rs})
    for (const int64_t top_k : {1, 8}) EXPECT_EQ(resolve_dispatch({.dispatch = asked}, top_k, 8), asked);
}

TEST(ResolveOverlap, AutoIsPartsWhereStreamsRunBesideEachOther) {
  EXPECT_EQ(resolve_overlap(OverlapMode::automatic, DeviceKind::cuda), OverlapMode::parts);
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::null})
    EXPECT_EQ(resolve_overlap(OverlapMode::automatic, device), OverlapMode::none);
  for (const OverlapMode asked : {OverlapMode::none, OverlapMode::parts})
    for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
      EXPECT_EQ(resolve_overlap(asked, device), asked);
}

}  // namespace
}  // namespace moesaic
