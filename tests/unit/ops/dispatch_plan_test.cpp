#include "ops/dispatch_plan/dispatch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "support/op_runner.h"

namespace moesaic {
namespace {

using test::OpRunner;

/// The routing of one group, the same on all of its ranks.
struct Group {
  int64_t e = 1, T = 4, K = 2, experts_per_rank = 2;
  std::vector<int32_t> owner, local;  // [E]
  std::vector<int32_t> indices;       // [e * T, K]
  int64_t E() const { return e * experts_per_rank; }
  int32_t owner_of(int32_t slot) const {
    const int32_t expert = indices[static_cast<size_t>(slot)];
    return expert < 0 ? -1 : owner[static_cast<size_t>(expert)];
  }
  int32_t local_of(int32_t slot) const {
    return local[static_cast<size_t>(indices[static_cast<size_t>(slot)])];
  }
};

/// Experts dealt to ranks in a random order, K different random experts per token, some choices dropped.
Group random_group(int64_t e, int64_t K, uint64_t seed, int64_t T = 5) {
  Group g{.e = e, .T = T, .K = K, .experts_per_rank = e >= 4 ? 1 : 4};
  g.owner.resize(static_cast<size_t>(g.E()));
  g.local.resize(g.owner.size());
  uint64_t draw = 0;
  const auto shuffled = [&] {
    std::vector<int32_t> v(static_cast<size_t>(g.E()));
    std::iota(v.begin(), v.end(), 0);
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[random_below(i, seed, 1, draw++)]);
    return v;
  };
  const auto dealt = shuffled();
  for (size_t i = 0; i < dealt.size(); ++i) {
    g.owner[static_cast<size_t>(dealt[i])] =
        static_cast<int32_t>(i) / static_cast<int32_t>(g.experts_per_rank);
    g.local[static_cast<size_t>(dealt[i])] =
        static_cast<int32_t>(i) % static_cast<int32_t>(g.experts_per_rank);
  }
  for (int64_t token = 0; token < e * T; ++token) {
    const auto experts = shuffled();
    for (int64_t k = 0; k < K; ++k)
      g.indices.push_back(random_below(8, seed, 2, draw++) == 0 ? -1 : experts[static_cast<size_t>(k)]);
  }
  return g;
}

/// What the op wrote on one rank.
struct Planned {
  std::vector<int32_t> offsets, row_recv, row_slot, slot_row, own_ends, own_token, send_token, send_offsets,
      recv_offsets, recv_token, token_send;
  int32_t overflow = 0;
  double bytes = 0;
};

Planned plan(const Group& g, int64_t rank, bool a2a, int64_t R, int64_t N, int32_t overflow_before = 0) {
  OpRunner r;
  ops::DispatchPlan args{
      .owner = g.owner, .local = g.local, .e = g.e, .rank = rank, .num_local_experts = g.experts_per_rank};
  args.indices = r.ints("indices", {g.e * g.T, g.K}, g.indices);
  args.offsets = r.ints("offsets", {g.experts_per_rank + 1});
  args.row_recv = r.ints("row_recv", {R});
  args.row_slot = r.ints("row_slot", {R});
  args.slot_row = r.ints("slot_row", {g.e * g.T, g.K});
  args.own_ends = r.ints("own_ends", {g.experts_per_rank});
  args.own_token = r.ints("own_token", {R}, std::vector<int32_t>(static_cast<size_t>(R), -1));
  args.overflow = r.ints("overflow", {1}, {overflow_before});
  if (a2a) {
    args.send_token = r.ints("send_token", {g.T * std::min(g.K, g.e)});
    args.send_offsets = r.ints("send_offsets", {g.e + 1});
    args.recv_offsets = r.ints("recv_offsets", {g.e + 1});
    args.recv_token = r.ints("recv_token", {N});
    args.token_send = r.ints("token_send", {g.T, g.e});
  }
  ops::dispatch_plan(r.program(), Stream::compute, args);
  r.run();
  Planned p;
  p.offsets = r.get_ints(args.offsets);
  p.row_recv = r.get_ints(args.row_recv);
  p.row_slot = r.get_ints(args.row_slot);
  p.slot_row = r.get_ints(args.slot_row);
  p.own_ends = r.get_ints(args.own_ends);
  p.own_token = r.get_ints(args.own_token);
  p.overflow = r.get_ints(args.overflow)[0];
  if (a2a) {
    p.send_token = r.get_ints(args.send_token);
    p.send_offsets = r.get_ints(args.send_offsets);
    p.recv_offsets = r.get_ints(args.recv_offsets);
    p.recv_token = r.get_ints(args.recv_token);
    p.token_send = r.get_ints(args.token_send);
  }
  p.bytes = r.program().nodes()[0].cost.bytes;
  return p;
}

std::vector<Planned> plan_all(const Group& g, bool a2a, int64_t R, int64_t N) {
  std::vector<Planned> all;
  for (int64_t rank = 0; rank < g.e; ++rank) all.push_back(plan(g, rank, a2a, R, N));
  return all;
}

/// The order law by sorting: slots whose expert is here, by local expert, ring distance of the source, token, k.
std::vector<int32_t> sorted_slots(const Group& g, int64_t rank,
                                  const std::set<int32_t>& left_out_tokens = {}) {
  std::vector<int32_t> slots;
  for (int32_t slot = 0; slot < static_cast<int32_t>(g.indices.size()); ++slot)
    if (g.owner_of(slot) == rank && !left_out_tokens.contains(slot / static_cast<int32_t>(g.K)))
      slots.push_back(slot);
  std::sort(slots.begin(), slots.end(), [&](int32_t a, int32_t b) {
    const auto key = [&](int32_t slot) {
      const int64_t source = slot / (g.T * g.K);
      return std::tuple(g.local_of(slot), (source - rank + g.e) % g.e, slot);
    };
    return key(a) < key(b);
  });
  return slots;
}

/// Everything that one rank's plan says about its rows, against the sorted list of them.
void expect_rows(const Group& g, const Planned& p, int64_t rank, const std::vector<int32_t>& slots, int64_t R,
                 bool a2a) {
  const auto rows = std::min<int64_t>(R, static_cast<int64_t>(slots.size()));
  ASSERT_EQ(p.offsets.front(), 0);
  ASSERT_EQ(p.offsets.back(), rows);
  std::vector<int32_t> slot_row(g.indices.size(), -1), own_token(static_cast<size_t>(R), -1);
  for (int32_t row = 0; row < rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)], token = slot / static_cast<int32_t>(g.K);
    slot_row[static_cast<size_t>(slot)] = row;
    EXPECT_EQ(p.row_slot[static_cast<size_t>(row)], slot);
    const int32_t recv = p.row_recv[static_cast<size_t>(row)];
    EXPECT_EQ(a2a ? p.recv_token[static_cast<size_t>(recv)] : recv, token);
    const auto expert = static_cast<size_t>(g.local_of(slot));
    EXPECT_TRUE(p.offsets[expert] <= row && row < p.offsets[expert + 1]);
    const bool own = token / g.T == rank;
    EXPECT_EQ(row < p.own_ends[expert], own) << row;
    if (own) own_token[static_cast<size_t>(row)] = static_cast<int32_t>(token - rank * g.T);
  }
  EXPECT_EQ(p.own_token, own_token);
  for (size_t x = 0; x < p.own_ends.size(); ++x)
    EXPECT_TRUE(p.offsets[x] <= p.own_ends[x] && p.own_ends[x] <= p.offsets[x + 1]) << x;
  EXPECT_EQ(p.slot_row, slot_row);
}

/// What rank p sends to r is, in number and order, what r expects from p; rows of a source are in order of token.
void expect_exchange(const Group& g, const std::vector<Planned>& all) {
  for (size_t p = 0; p < all.size(); ++p)
    for (size_t r = 0; r < all.size(); ++r) {
      const int32_t first = all[p].send_offsets[r], count = all[p].send_offsets[r + 1] - first;
      const int32_t to = all[r].recv_offsets[p];
      ASSERT_EQ(count, all[r].recv_offsets[p + 1] - to) << p << " to " << r;
      for (int32_t i = 0; i < count; ++i) {
        const int32_t token = all[p].send_token[static_cast<size_t>(first) + static_cast<size_t>(i)];
        EXPECT_EQ(static_cast<int64_t>(p) * g.T + token,
                  all[r].recv_token[static_cast<size_t>(to) + static_cast<size_t>(i)]);
        EXPECT_EQ(all[p].token_send[static_cast<size_t>(token) * all.size() + r], first + i);
        EXPECT_TRUE(i == 0 || all[p].send_token[static_cast<size_t>(first + i - 1)] < token);
      }
      const auto sent = [&](int64_t t) {
        return all[p].token_send[static_cast<size_t>(t) * all.size() + r] >= 0;
      };
      int64_t tokens = 0;
      for (int64_t t = 0; t < g.T; ++t) tokens += sent(t);
      EXPECT_EQ(tokens, count);
    }
}

TEST(DispatchPlan, RandomRoutingPutsEveryChoiceOnItsRankExactlyOnceInOrder) {
  for (int64_t e : {1, 2, 4, 8})
    for (int64_t K = 1; K <= 4; ++K)
      for (bool a2a : {true, false})
        for (uint64_t seed = 0; seed < 5; ++seed) {
          SCOPED_TRACE(fmt::format("e {} K {} a2a {} seed {}", e, K, a2a, seed));
          const Group g = random_group(e, K, seed);
          const int64_t R = e * g.T * K, N = e * g.T;
          const auto all = plan_all(g, a2a, R, N);
          std::vector<int32_t> seen(g.indices.size(), 0);
          for (int64_t rank = 0; rank < e; ++rank) {
            const Planned& p = all[static_cast<size_t>(rank)];
            expect_rows(g, p, rank, sorted_slots(g, rank), R, a2a);
            EXPECT_EQ(p.overflow, 0);
            for (int32_t row = 0; row < p.offsets.back(); ++row)
              ++seen[static_cast<size_t>(p.row_slot[static_cast<size_t>(row)])];
          }
          for (size_t slot = 0; slot < seen.size(); ++slot)
            EXPECT_EQ(seen[slot], g.indices[slot] >= 0 ? 1 : 0);
          if (a2a) expect_exchange(g, all);
        }
}

TEST(DispatchPlan, ATokenIsSentOnceToARankThatOwnsSeveralOfItsExperts) {
  const Group g{.e = 2,
                .T = 1,
                .K = 3,
                .experts_per_rank = 3,
                .owner = {0, 0, 0, 1, 1, 1},
                .local = {0, 1, 2, 0, 1, 2},
                .indices = {5, 3, 4, 1, -1, 3}};
  const auto all = plan_all(g, true, 6, 2);
  EXPECT_EQ(all[0].send_offsets, (std::vector<int32_t>{0, 0, 1}));
  EXPECT_EQ(all[1].recv_offsets, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(all[1].offsets, (std::vector<int32_t>{0, 2, 3, 4}));
  // Expert 3: rank 1's own token comes before that of rank 0.
  EXPECT_EQ(std::vector<int32_t>(all[1].row_recv.begin(), all[1].row_recv.begin() + 4),
            (std::vector<int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(std::vector<int32_t>(all[1].row_slot.begin(), all[1].row_slot.begin() + 4),
            (std::vector<int32_t>{5, 1, 2, 0}));
}

TEST(DispatchPlan, OneExpertMayTakeEverythingAndARankNothing) {
  for (bool a2a : {true, false}) {
    Group g = random_group(4, 1, 3);
    std::fill(g.indices.begin(), g.indices.end(), 2);
    const int64_t busy = g.owner[2];
    const auto all = plan_all(g, a2a, 20, 20);
    for (int64_t rank = 0; rank < 4; ++rank) {
      expect_rows(g, all[static_cast<size_t>(rank)], rank, sorted_slots(g, rank), 20, a2a);
      EXPECT_EQ(all[static_cast<size_t>(rank)].offsets.back(), rank == busy ? 20 : 0);
    }
    if (a2a) expect_exchange(g, all);
    std::fill(g.indices.begin(), g.indices.end(), -1);
    EXPECT_EQ(plan(g, busy, a2a, 20, 20).offsets.back(), 0);
  }
}

TEST(DispatchPlan, PastTheBoundOnRowsTheFirstStayAndTheDemandIsReported) {
  for (bool a2a : {true, false})
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(seed);
      const Group g = random_group(2, 3, seed);
      const auto slots = sorted_slots(g, 1);
      const auto R = static_cast<int64_t>(slots.size()) - 4;
      const Planned p = plan(g, 1, a2a, R, 10);
      expect_rows(g, p, 1, slots, R, a2a);
      EXPECT_EQ(p.overflow, static_cast<int32_t>(slots.size()));
      EXPECT_EQ(plan(g, 1, a2a, R, 10, 1000).overflow, 1000) << "a larger demand from before stays";
      EXPECT_EQ(plan(g, 1, a2a, R + 4, 10).overflow, 0);
    }
}

TEST(DispatchPlan, PastTheReceiveBufferSendersAndReceiversLeaveOutTheSameTokens) {
  for (int64_t e : {2, 4, 8})
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(fmt::format("e {} seed {}", e, seed));
      const Group g = random_group(e, 2, seed);
      const int64_t N = 4;
      const auto all = plan_all(g, true, e * g.T * g.K, N);
      expect_exchange(g, all);
      bool one_overflowed = false;
      for (int64_t rank = 0; rank < e; ++rank) {
        std::set<int32_t> tokens, left_out;
        for (int32_t slot : sorted_slots(g, rank)) tokens.insert(slot / static_cast<int32_t>(g.K));
        int64_t place = 0;
        for (int32_t token : tokens)
          if (place++ >= N) left_out.insert(token);
        const Planned& p = all[static_cast<size_t>(rank)];
        expect_rows(g, p, rank, sorted_slots(g, rank, left_out), e * g.T * g.K, true);
        EXPECT_EQ(p.recv_offsets.back(), std::min<int64_t>(N, static_cast<int64_t>(tokens.size())));
        EXPECT_EQ(p.overflow, left_out.empty() ? 0 : static_cast<int32_t>(sorted_slots(g, rank).size()));
        one_overflowed |= !left_out.empty();
      }
      EXPECT_TRUE(one_overflowed);
    }
}

TEST(DispatchPlan, CostIsEveryTensorOnceAndOverflowTwice) {
  const Group g = random_group(2, 3, 1);  // 10 tokens, K 3, 4 experts a rank
  const double rows = 5 + 2 * 11 + 4 + 11 + 30 + 30 + 2;
  EXPECT_EQ(plan(g, 0, false, 11, 10).bytes, 4 * rows);
  EXPECT_EQ(plan(g, 0, true, 11, 9).bytes, 4 * (rows + 5 * 2 + 3 + 3 + 9 + 5 * 2));
}

}  // namespace
}  // namespace moesaic
