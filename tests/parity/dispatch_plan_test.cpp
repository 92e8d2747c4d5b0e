#include "ops/dispatch_plan/dispatch_plan.h"

#include <numeric>

#include "support/parity.h"

namespace moesaic::test {
namespace {

uint64_t draw(uint64_t below, uint64_t what, uint64_t i) {
  return random_below(below, test_seed(), what, i);
}

struct Case {
  int64_t e = 2, T = 50, K = 2, experts_per_rank = 4;
  bool a2a = true;
  double rows_factor = 0, recv_factor = 0;  // bounds in units of T K rows and T tokens; 0 = never reached
  int drop_one_in = 8;                      // choices; 0 = none
  int only_expert = -1;                     // every choice, when not negative

  int64_t E() const { return e * experts_per_rank; }
  int64_t R() const {
    return rows_factor == 0 ? e * T * K : static_cast<int64_t>(rows_factor * static_cast<double>(T * K));
  }
  int64_t N() const {
    return recv_factor == 0 ? e * T : static_cast<int64_t>(recv_factor * static_cast<double>(T));
  }
};

std::vector<int32_t> shuffled(int64_t count, uint64_t what, uint64_t first) {
  std::vector<int32_t> v(static_cast<size_t>(count));
  std::iota(v.begin(), v.end(), 0);
  for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[draw(i, what, first + i)]);
  return v;
}

/// K different experts per token, low ones more often, so that groups differ in size and some may be empty.
std::vector<int32_t> routing(const Case& c) {
  std::vector<int32_t> indices;
  const auto E = static_cast<uint64_t>(c.E());
  for (int64_t token = 0; token < c.e * c.T; ++token) {
    std::vector<bool> taken(E);
    for (int64_t k = 0; k < c.K; ++k) {
      const auto i = static_cast<uint64_t>(token * c.K + k);
      uint64_t x = draw(E, 1, i) * draw(E, 2, i) / E;
      while (taken[x]) x = (x + 1) % E;
      taken[x] = true;
      const bool dropped = c.drop_one_in > 0 && draw(static_cast<uint64_t>(c.drop_one_in), 3, i) == 0;
      indices.push_back(dropped ? -1 : c.only_expert >= 0 ? c.only_expert : static_cast<int32_t>(x));
    }
  }
  return indices;
}

void expect_plan(const Case& c, int64_t rank) {
  SCOPED_TRACE(fmt::format("e {} T {} K {} experts {} a2a {} rank {} R {} N {}", c.e, c.T, c.K,
                           c.experts_per_rank, c.a2a, rank, c.R(), c.N()));
  const auto dealt = shuffled(c.E(), 4, 0);
  const auto indices = routing(c);
  expect_parity({}, [&](OpRunner& r) -> Outputs {
    ops::DispatchPlan args{.e = c.e, .rank = rank, .num_local_experts = c.experts_per_rank};
    args.owner.resize(dealt.size()), args.local.resize(dealt.size());
    for (size_t i = 0; i < dealt.size(); ++i) {
      const auto expert = static_cast<size_t>(dealt[i]), per_rank = static_cast<size_t>(c.experts_per_rank);
      args.owner[expert] = static_cast<int32_t>(i / per_rank);
      args.local[expert] = static_cast<int32_t>(i % per_rank);
    }
    args.indices = r.ints("indices", {c.e * c.T, c.K}, indices);
    args.offsets = r.ints("offsets", {c.experts_per_rank + 1});
    args.row_recv = r.ints("row_recv", {c.R()});
    args.row_slot = r.ints("row_slot", {c.R()});
    args.slot_row = r.ints("slot_row", {c.e * c.T, c.K});
    args.overflow = r.ints("overflow", {1}, {7});
    args.own_ends = r.ints("own_ends", {c.experts_per_rank});
    args.own_token = r.ints("own_token", {c.R()});
    Outputs outputs{args.offsets,  args.row_recv, args.row_slot, args.slot_row,
                    args.overflow, args.own_ends, args.own_token};
    if (c.a2a) {
      args.send_token = r.ints("send_token", {c.T * std::min(c.K, c.e)});
      args.send_offsets = r.ints("send_offsets", {c.e + 1});
      args.recv_offsets = r.ints("recv_offsets", {c.e + 1});
      args.recv_token = r.ints("recv_token", {c.N()});
      args.token_send = r.ints("token_send", {c.T, c.e});
      for (Handle h :
           {args.send_token, args.send_offsets, args.recv_offsets, args.recv_token, args.token_send})
        outputs.push_back(h);
    }
    ops::dispatch_plan(r.program(), Stream::compute, args);
    return outputs;
  });
}

void expect_plans(const Case& c) {
  for (int64_t rank = 0; rank < c.e; ++rank) expect_plan(c, rank);
}

TEST(DispatchPlanParity, RandomRouting) {
  for (const int64_t e : {1, 2, 3, 8})
    for (const int64_t K : {1, 2, 3, 8})
      for (const int64_t T : {1, 17, 130, 301})
        for (const bool a2a : {false, true})
          expect_plans({.e = e, .T = T, .K = K, .experts_per_rank = K == 8 ? 8 : 4, .a2a = a2a});
}

TEST(DispatchPlanParity, ManyExpertsAndRanks) {
  for (const bool a2a : {false, true}) {
    expect_plan({.e = 1, .T = 600, .K = 16, .experts_per_rank = 512, .a2a = a2a}, 0);
    for (const int64_t rank : {0, 17, 63})
      expect_plan({.e = 64, .T = 20, .K = 8, .experts_per_rank = 4, .a2a = a2a}, rank);
    expect_plan({.e = 128, .T = 3, .K = 40, .experts_per_rank = 1, .a2a = a2a}, 100);
    expect_plan({.e = 4, .T = 300, .K = 70, .experts_per_rank = 25, .a2a = a2a}, 1);
  }
}

TEST(DispatchPlanParity, LargeEnoughForLongerChunks) {
  for (const bool a2a : {false, true})
    expect_plan({.e = 4, .T = 11000, .K = 7, .experts_per_rank = 16, .a2a = a2a, .drop_one_in = 0}, 2);
}

TEST(DispatchPlanParity, OneExpertTakesEverything) {
  for (const bool a2a : {false, true})
    for (const int expert : {0, 5})
      expect_plans({.e = 3, .T = 90, .K = 1, .a2a = a2a, .only_expert = expert});
}

TEST(DispatchPlanParity, EverythingIsDropped) {
  for (const bool a2a : {false, true}) expect_plans({.e = 3, .T = 90, .a2a = a2a, .drop_one_in = 1});
}

TEST(DispatchPlanParity, PastTheBounds) {
  for (const int64_t e : {1, 2, 4, 8})
    for (const int64_t T : {10, 301})
      for (const double rows : {0.0, 0.3, 0.9})
        for (const double recv : {0.0, 0.3, 0.8, 1.1, 1.9}) {
          expect_plans({.e = e, .T = T, .K = 3, .a2a = true, .rows_factor = rows, .recv_factor = recv});
          if (recv == 0) expect_plans({.e = e, .T = T, .K = 3, .a2a = false, .rows_factor = rows});
        }
  // A bound that falls on the border of two sources, when every token goes everywhere.
  for (const double recv : {1.0, 2.0})
    expect_plans({.e = 3, .T = 200, .K = 12, .a2a = true, .recv_factor = recv, .drop_one_in = 0});
}

}  // namespace
}  // namespace moesaic::test
