// The planner: which waits it derives, which it leaves out, and where temps lie.
#include <gtest/gtest.h>

#include "support/random_program.h"

namespace moesaic::test {
namespace {

constexpr Stream kCompute = Stream::compute, kComm = Stream::comm, kReduce = Stream::reduce;

struct Sketch {
  Program g{"sketch", DeviceKind::cpu};
  Slot slot = g.slot("memory");
  Handle tensor(int64_t first, int64_t count) {
    return g.external(slot, 4 * first, "x", DType::f32, {count});
  }
  void node(Stream stream, std::vector<Access> accesses) {
    add_mixer(g, "node", {stream}, std::move(accesses));
  }
};

struct Edge {
  int32_t node, before;
  bool operator==(const Edge&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Edge& e) {
  return out << e.node << " after " << e.before;
}
std::vector<Edge> edges(const Plan& plan) {
  std::vector<Edge> all;
  for (const Wait& wait : plan.waits()) all.push_back({wait.node, wait.before});
  return all;
}
using Edges = std::vector<Edge>;

TEST(Plan, AReadWaitsForTheWriteOnAnotherStream) {
  Sketch s;
  const Handle x = s.tensor(0, 4);
  s.node(kCompute, {out(x)});
  s.node(kComm, {in(x)});
  EXPECT_EQ(edges(Plan(s.g)), (Edges{{1, 0}}));
}

TEST(Plan, AWriteWaitsForReadsOfAllOtherStreams) {
  Sketch s;
  const Handle x = s.tensor(0, 4);
  s.node(kCompute, {in(x)});
  s.node(kComm, {in(x)});
  s.node(kReduce, {out(x)});
  EXPECT_EQ(edges(Plan(s.g)), (Edges{{2, 0}, {2, 1}}));
}

TEST(Plan, AWriteWaitsForAWrite) {
  Sketch s;
  const Handle x = s.tensor(0, 4);
  s.node(kCompute, {out(x)});
  s.node(kComm, {out(x)});
  EXPECT_EQ(edges(Plan(s.g)), (Edges{{1, 0}}));
}

TEST(Plan, ReadsDoNotWaitForReadsNorAStreamForItself) {
  Sketch s;
  const Handle x = s.tensor(0, 4), y = s.tensor(8, 4);
  s.node(kCompute, {in(x)});
  s.node(kComm, {in(x)});
  s.node(kComm, {out(y)});
  s.node(kComm, {in(y)});
  EXPECT_TRUE(Plan(s.g).waits().empty());
}

TEST(Plan, BytesDecideNotHandles) {
  Sketch s;
  s.node(kCompute, {out(s.tensor(0, 4))});
  s.node(kComm, {in(s.tensor(4, 4))});                      // its neighbour
  s.node(kComm, {in(s.tensor(3, 1))});                      // its last word
  s.node(kReduce, {in(s.g.view(s.tensor(0, 8), 1, {2}))});  // a view into it
  EXPECT_EQ(edges(Plan(s.g)), (Edges{{2, 0}, {3, 0}}));
}

TEST(Plan, AnEmptyTensorIsNeverWaitedFor) {
  Sketch s;
  s.node(kCompute, {out(s.tensor(0, 8))});
  s.node(kComm, {in(s.tensor(4, 0))});
  const Plan plan(s.g);
  EXPECT_TRUE(plan.waits().empty());
  EXPECT_FALSE(find_unordered(plan));
}

TEST(Plan, SlotsNeverConflict) {
  Sketch s;
  const Slot other = s.g.slot("other");
  s.node(kCompute, {out(s.tensor(0, 4))});
  s.node(kComm, {in(s.g.external(other, 0, "y", DType::f32, {4}))});
  EXPECT_TRUE(Plan(s.g).waits().empty());
}

TEST(Plan, LeavesOutWhatOtherWaitsImply) {
  Sketch s;
  const Handle x = s.tensor(0, 4), y = s.tensor(8, 4), z = s.tensor(16, 4);
  s.node(kCompute, {out(x)});       // 0
  s.node(kCompute, {out(y)});       // 1
  s.node(kComm, {in(y)});           // 2 waits for 1
  s.node(kComm, {in(x)});           // 3: 0 was over before 1
  s.node(kComm, {out(z)});          // 4
  s.node(kReduce, {in(x), in(z)});  // 5 waits for 4, which had waited for compute
  EXPECT_EQ(edges(Plan(s.g)), (Edges{{2, 1}, {5, 4}}));
}

TEST(Plan, ANodeOnTwoStreamsWaitsForBothAndOrdersBoth) {
  Sketch s;
  const Handle x = s.tensor(0, 4), y = s.tensor(8, 4);
  s.node(kComm, {out(x)});                              // 0
  add_mixer(s.g, "both", {kCompute, kComm}, {out(y)});  // 1: its place on comm comes after 0
  s.node(kCompute, {in(x)});                            // 2: so nothing is left to wait for
  s.node(kComm, {in(y)});                               // 3: nor here
  s.node(kReduce, {in(y)});                             // 4 waits for 1
  EXPECT_EQ(edges(Plan(s.g)), (Edges{{1, 0}, {4, 1}}));
  EXPECT_FALSE(find_unordered(Plan(s.g)));
}

TEST(Plan, MarksWaitsThatOnlyReusedMemoryCauses) {
  Sketch s;
  const Handle x = s.tensor(0, 4);
  const Handle a = s.g.temp("a", DType::f32, {64}), b = s.g.temp("b", DType::f32, {64});
  s.node(kCompute, {out(a)});       // 0
  s.node(kComm, {in(a), out(x)});   // 1 waits for 0: data
  s.node(kCompute, {out(b)});       // 2 waits for 1: a's memory
  s.node(kReduce, {in(b), in(x)});  // 3 waits for 2: data (and so for 1)
  const Plan plan(s.g);
  ASSERT_EQ(edges(plan), (Edges{{1, 0}, {2, 1}, {3, 2}}));
  EXPECT_EQ(plan.offset(a), plan.offset(b));
  EXPECT_FALSE(plan.waits()[0].reuse);
  EXPECT_TRUE(plan.waits()[1].reuse);
  EXPECT_FALSE(plan.waits()[2].reuse);
}

TEST(Plan, AViewKeepsItsTempAlive) {
  Sketch s;
  const Handle a = s.g.temp("a", DType::f32, {64}), view = s.g.view(a, 32, {32}),
               b = s.g.temp("b", DType::f32, {64});
  s.node(kCompute, {out(a)});
  s.node(kCompute, {out(b)});
  s.node(kCompute, {in(view), in(b)});
  const Plan plan(s.g);
  EXPECT_NE(plan.offset(a), plan.offset(b));
  EXPECT_EQ(plan.offset(view), plan.offset(a) + 128);
  EXPECT_EQ(plan.lifetime(a), std::pair(0, 2));
}

TEST(Plan, AChainNeedsTwoPlacesOnly) {
  Sketch s;
  Handle before = s.g.temp("t", DType::f32, {1000});
  s.node(kCompute, {out(before)});
  for (int i = 0; i < 9; ++i) {
    const Handle next = s.g.temp("t", DType::f32, {1000});
    s.node(kCompute, {in(before), out(next)});
    before = next;
  }
  EXPECT_EQ(Plan(s.g).workspace_bytes(), 2 * round_up(4000, 256));
}

TEST(Plan, TheWorkspaceIsTheMomentThatNeedsMost) {
  Sketch s;
  const Handle a = s.g.temp("a", DType::f32, {64}), b = s.g.temp("b", DType::f32, {128}),
               c = s.g.temp("c", DType::f32, {64}), d = s.g.temp("d", DType::f32, {64});
  s.node(kCompute, {out(a), out(b)});        // 256 + 512
  s.node(kCompute, {in(a), out(c)});         // + 256
  s.node(kCompute, {in(b), in(c), out(d)});  // d where a was
  const Plan plan(s.g);
  EXPECT_EQ(plan.workspace_bytes(), 1024);
  EXPECT_EQ(plan.offset(d), plan.offset(a));
}

TEST(PlanDeathTest, ReadingATempThatNothingWroteIsABug) {
  Sketch s;
  s.node(kCompute, {in(s.g.temp("ghost", DType::f32, {4}))});
  EXPECT_DEATH(Plan(s.g), "reads ghost, which nothing has written");
}

TEST(PlanDeathTest, AViewMustFit) {
  Sketch s;
  const Handle a = s.g.temp("a", DType::f32, {4});
  EXPECT_DEATH(s.g.view(a, 2, {3}), "does not fit");
}

TEST(Plan, PrintsEachNodeWithItsStreamAndWaits) {
  Sketch s;
  const Handle a = s.g.temp("a", DType::f32, {64});
  s.g.segment("first part");
  s.node(kCompute, {out(a)});
  s.node(kComm, {in(a)});
  const std::string text = print_plan(Plan(s.g));
  for (const char* word : {"program sketch", "first part", "compute", "comm", "waits for 0:node", "a[64]"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
}

class RandomPlans : public testing::TestWithParam<int64_t> {};  // streams of a node

TEST_P(RandomPlans, AreOrderedAndEachWaitIsNeeded) {
  size_t num_waits = 0, num_reuse = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Plan plan(random_program(seed, {.most_streams = GetParam()}));
    const auto pair = find_unordered(plan);
    EXPECT_FALSE(pair) << "seed " << seed << ": nodes " << pair->first << " and " << pair->second << "\n"
                       << print_plan(plan);
    const auto waits = plan.waits();
    num_waits += waits.size();
    for (size_t k = 0; k < waits.size(); ++k) {
      num_reuse += waits[k].reuse;
      EXPECT_TRUE(find_unordered(plan.without_wait(k)))
          << "seed " << seed << ": " << waits[k].node << " need not wait for " << waits[k].before << "\n"
          << print_plan(plan);
    }
  }
  EXPECT_GT(num_waits, 1000u);
  EXPECT_GT(num_reuse, 20u);
}

TEST_P(RandomPlans, TempsNeverShareMemoryWhileAlive) {
  int64_t shared = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Plan plan(random_program(seed, {.num_nodes = 40, .most_streams = GetParam()}));
    const auto& tensors = plan.program().tensors();
    for (int32_t a = 0; a < static_cast<int32_t>(tensors.size()); ++a)
      for (int32_t b = 0; b < a; ++b) {
        const TensorInfo &x = tensors[static_cast<size_t>(a)], &y = tensors[static_cast<size_t>(b)];
        if (x.slot.index != 0 || y.slot.index != 0 || x.root != a || y.root != b) continue;
        const auto [x_first, x_last] = plan.lifetime({a});
        const auto [y_first, y_last] = plan.lifetime({b});
        const bool memory = plan.offset({a}) < plan.offset({b}) + y.bytes() &&
                            plan.offset({b}) < plan.offset({a}) + x.bytes();
        const bool alive = x_first <= y_last && y_first <= x_last;
        EXPECT_FALSE(memory && alive) << "seed " << seed << ": " << x.name << " and " << y.name;
        EXPECT_LE(plan.offset({a}) + x.bytes(), plan.workspace_bytes());
        shared += memory;
      }
  }
  EXPECT_GT(shared, 100);  // memory is used again
}

INSTANTIATE_TEST_SUITE_P(Streams, RandomPlans, testing::Values(1, 3));

}  // namespace
}  // namespace moesaic::test
