#include "mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mesh/placement.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayoutConfig layout(int64_t pp, int64_t dp, int64_t n, int64_t e = 0) {
  return {.pp = pp, .dp = dp, .n = n, .e = e};
}

TEST(Mesh, CoordinatesFollowTheRankFormula) {
  const Mesh mesh(layout(2, 3, 4, 2));
  EXPECT_EQ(mesh.world_size(), 24);
  EXPECT_EQ(mesh.coords(0), (Coords{}));
  // rank 19 = (1 * 3 + 1) * 4 + 3, so q = 7
  EXPECT_EQ(mesh.coords(19), (Coords{.pp = 1, .dp = 1, .n = 3, .edp = 3, .e = 1}));
  EXPECT_EQ(mesh.rank_of(1, 1, 3), 19);
}

TEST(Mesh, GroupsListGlobalRanksInOrder) {
  const Mesh mesh(layout(2, 2, 2, 4));  // e = 2n: an expert group is two sequence groups
  EXPECT_THAT(mesh.group(Axis::world, 5), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(mesh.group(Axis::stage, 5), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.group(Axis::n, 5), ElementsAre(4, 5));
  EXPECT_THAT(mesh.group(Axis::dp, 5), ElementsAre(5, 7));
  EXPECT_THAT(mesh.group(Axis::e, 5), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.group(Axis::edp, 5), ElementsAre(5));
  EXPECT_THAT(mesh.group(Axis::pp, 5), ElementsAre(1, 5));
}

TEST(Mesh, ExpertGroupsLieWithinASequenceGroupWhenEIsSmaller) {
  const Mesh mesh(layout(1, 2, 4, 2));
  EXPECT_THAT(mesh.group(Axis::e, 6), ElementsAre(6, 7));
  EXPECT_THAT(mesh.group(Axis::edp, 6), ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(mesh.index(Axis::edp, 6), 3);
}

TEST(Mesh, EveryGroupHoldsItsRankAtItsIndexAndSplitsTheWorld) {
  for (const LayoutConfig& l : {layout(1, 1, 1), layout(2, 3, 4), layout(1, 4, 4, 2), layout(3, 4, 2, 4)}) {
    const Mesh mesh(l);
    for (const Axis axis : {Axis::world, Axis::stage, Axis::n, Axis::dp, Axis::e, Axis::edp, Axis::pp}) {
      for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
        const std::vector<int64_t> group = mesh.group(axis, rank);
        ASSERT_EQ(static_cast<int64_t>(group.size()), mesh.size(axis));
        EXPECT_EQ(group.at(static_cast<size_t>(mesh.index(axis, rank))), rank);
        for (const int64_t mate : group) EXPECT_EQ(mesh.group(axis, mate), group);
      }
    }
  }
}

TEST(Mesh, EIsNByDefault) {
  EXPECT_EQ(Mesh(layout(1, 2, 4)).size(Axis::e), 4);
  EXPECT_EQ(Mesh(layout(1, 2, 4)).size(Axis::edp), 2);
}

TEST(Mesh, RefusesExpertRanksThatDoNotFitTheStage) {
  EXPECT_THAT(message_of([] { Mesh(layout(1, 1, 4, 3)); }),
              AllOf(HasSubstr("layout.e = 3"), HasSubstr("1 * 4 = 4 ranks")));
  EXPECT_THAT(message_of([] { Mesh(layout(1, 1, 2, 4)); }), HasSubstr("layout.e = 4 does not divide"));
  EXPECT_THAT(message_of([] { Mesh(layout(1, 3, 2, 3)); }), HasSubstr("layout.e = 3 and layout.n = 2"));
  EXPECT_THAT(message_of([] { Mesh(layout(64, 64, 64)); }),
              HasSubstr("262144 ranks, expected at most 65536"));
  EXPECT_THAT(message_of([] { Mesh(layout(0, 1, 1)); }), HasSubstr("layout.pp = 0"));
  EXPECT_THAT(message_of([] { Mesh(layout(int64_t{1} << 62, 4, 4)); }), HasSubstr("expected each from 1"));
}

TEST(Placement, ContiguousGivesEachOwnerARunOfExperts) {
  const ExpertPlacement placement = ExpertPlacement::contiguous(6, 3);
  EXPECT_THAT(placement.owners(), ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(placement.slots(), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(placement.local_experts(1), ElementsAre(2, 3));
  EXPECT_EQ(placement.owner(5), 2);
  EXPECT_EQ(placement.slot(5), 1);
}

TEST(Placement, AnyTableOfOwnersIsFollowed) {
  const ExpertPlacement placement({1, 0, 1, 0}, 2);
  EXPECT_EQ(placement.num_experts(), 4);
  EXPECT_EQ(placement.num_owners(), 2);
  EXPECT_THAT(placement.local_experts(0), ElementsAre(1, 3));
  EXPECT_THAT(placement.local_experts(1), ElementsAre(0, 2));
  EXPECT_EQ(placement.slot(3), 1);
}

}  // namespace
}  // namespace moesaic
