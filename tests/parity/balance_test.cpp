#include "ops/balance/balance.h"

#include <numeric>

#include "support/parity.h"

namespace moesaic::test {
namespace {

int32_t draw(int64_t below, uint64_t what, int64_t i) {
  return static_cast<int32_t>(
      random_below(static_cast<uint64_t>(below), test_seed(), what, static_cast<uint64_t>(i)));
}

/// count numbers of 0 .. below - 1, low ones more often; -1 for one in `dropped` when that is not 0.
std::vector<int32_t> choices(int64_t count, int64_t below, int64_t dropped) {
  std::vector<int32_t> v;
  for (int64_t i = 0; i < count; ++i)
    v.push_back(dropped > 0 && draw(dropped, 1, i) == 0 ? -1
                                                        : std::min(draw(below, 2, i), draw(below, 3, i)));
  return v;
}

/// The scope of each token: equal runs, or anything.
std::vector<int32_t> scopes(int64_t num_tokens, int64_t num_scopes, bool runs) {
  std::vector<int32_t> v;
  for (int64_t t = 0; t < num_tokens; ++t)
    v.push_back(runs ? static_cast<int32_t>(t * num_scopes / num_tokens) : draw(num_scopes, 4, t));
  return v;
}

std::vector<float> positive(int64_t count, uint64_t seed) {
  std::vector<float> v = fresh_randn(count, seed);
  for (float& x : v) x = std::abs(x);
  return v;
}

void expect_count(int64_t T, int64_t E, int64_t K, int64_t num_scopes, bool runs) {
  SCOPED_TRACE(fmt::format("T {} E {} K {} scopes {} runs {}", T, E, K, num_scopes, runs));
  // The CPU adds up to 1000 tokens one after another, the GPU pieces of them.
  expect_parity({.f32 = 2e-6}, [&](OpRunner& r) -> Outputs {
    const ops::BalanceCount args{.indices = r.ints("indices", {T, K}, choices(T * K, E, 5)),
                                 .probs = r.tensor("probs", {T, E}, positive(T * E, 1)),
                                 .scope = r.ints("scope", {T}, scopes(T, num_scopes, runs)),
                                 .counts = r.ints("counts", {num_scopes, E}),
                                 .prob_sums = r.tensor("prob_sums", {num_scopes, E})};
    ops::balance_count(r.program(), Stream::compute, args);
    return {args.counts, args.prob_sums};
  });
}

TEST(BalanceParity, Count) {
  for (const int64_t T : {1, 64, 65, 1000})
    for (const int64_t num_scopes : {1, 3, 40, 600})
      for (const bool runs : {false, true})
        for (const int64_t E : {1, 8, 30, 128}) expect_count(T, E, 3, num_scopes, runs);
  for (const int64_t E : {250, 512, 1024, 1027, 1100}) expect_count(500, E, 8, 2, true);
}

TEST(BalanceParity, Loss) {
  for (const int64_t num_scopes : {1, 7, 200})
    for (const auto& [E, groups] : std::vector<std::pair<int64_t, int64_t>>{
             {8, 0}, {8, 8}, {8, 2}, {30, 5}, {30, 1}, {512, 0}, {512, 16}})
      expect_parity({.f32 = 1e-6}, [&, e = E, n = groups](OpRunner& r) -> Outputs {
        const int64_t count = num_scopes * e;
        const ops::BalanceLoss args{.counts = r.ints("counts", {num_scopes, e}, choices(count, 1000, 0)),
                                    .prob_sums = r.tensor("prob_sums", {num_scopes, e}, positive(count, 2)),
                                    .loss = r.tensor("loss", {1}, {3}),
                                    .grad = r.tensor("grad", {num_scopes, e}),
                                    .top_k = 3,
                                    .expert_groups = n,
                                    .tokens_per_scope = 1234,
                                    .coef = 0.7f};
        ops::balance_loss(r.program(), Stream::compute, args);
        return {args.loss, args.grad};
      });
}

TEST(BalanceParity, ZLoss) {
  for (const int64_t T : {1, 100, 1024, 30001})
    expect_parity({.f32 = 1e-6}, [&](OpRunner& r) -> Outputs {
      const Handle loss = r.tensor("loss", {1}, {3});
      ops::z_loss(r.program(), Stream::compute,
                  {.lse = r.tensor("lse", {T}, fresh_randn(T, 3)), .loss = loss, .coef = 0.01f});
      return {loss};
    });
}

TEST(BalanceParity, AddCounts) {
  for (const int64_t rows : {1, 9, 300})
    for (const int64_t E : {1, 8, 257, 600})
      expect_parity({}, [&](OpRunner& r) -> Outputs {
        const Handle totals = r.ints("totals", {E}, choices(E, 1000, 0));
        ops::add_counts(
            r.program(), Stream::compute,
            {.counts = r.ints("counts", {rows, E}, choices(rows * E, 1000, 0)), .totals = totals});
        return {totals};
      });
}

struct CapacityCase {
  int64_t N = 100, K = 2, num_experts = 8, expert_groups = 0, num_scopes = 1, capacity = 10;
  int64_t first = 0, T = 0;  // T: 0 = all from `first` on
  bool ordered = false, runs = true;
  int64_t dropped = 6;  // one choice in so many is -1 before

  int64_t kept() const { return T == 0 ? N - first : T; }
};

void expect_capacity(const CapacityCase& c) {
  SCOPED_TRACE(fmt::format("N {} K {} experts {} in {} scopes {} capacity {} first {} T {} ordered {}", c.N,
                           c.K, c.num_experts, c.expert_groups, c.num_scopes, c.capacity, c.first, c.T,
                           c.ordered));
  std::vector<int32_t> order(static_cast<size_t>(c.N));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = c.N; i > 1; --i)
    std::swap(order[static_cast<size_t>(i - 1)], order[static_cast<size_t>(draw(i, 5, i))]);
  expect_parity({}, [&](OpRunner& r) -> Outputs {
    ops::Capacity args{
        .all_indices = r.ints("indices", {c.N, c.K}, choices(c.N * c.K, c.num_experts, c.dropped)),
        .all_scope = r.ints("scope", {c.N}, scopes(c.N, c.num_scopes, c.runs)),
        .kept = r.ints("kept", {c.kept(), c.K}),
        .dropped = r.ints("dropped", {1}, {100}),
        .first = c.first,
        .num_experts = c.num_experts,
        .expert_groups = c.expert_groups,
        .num_scopes = c.num_scopes,
        .capacity = c.capacity};
    if (c.ordered) args.order = r.ints("order", {c.N}, order);
    ops::capacity(r.program(), Stream::compute, args);
    return {args.kept, args.dropped};
  });
}

TEST(BalanceParity, Capacity) {
  for (const bool ordered : {false, true})
    for (const int64_t N : {1, 33, 500})
      for (const int64_t K : {1, 2, 7})
        for (const int64_t num_scopes : {1, 5})
          for (const bool runs : {false, true}) {
            const int64_t fair = std::max<int64_t>(1, N * K / (8 * num_scopes));
            for (const int64_t capacity : {int64_t{0}, fair, 100 * fair})
              expect_capacity({.N = N,
                               .K = K,
                               .num_scopes = num_scopes,
                               .capacity = capacity,
                               .ordered = ordered,
                               .runs = runs});
          }
}

TEST(BalanceParity, CapacityOfGroupsAndOfSomeRanksTokens) {
  for (const bool ordered : {false, true})
    for (const int64_t groups : {1, 4, 12})
      for (const auto& [first, T] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 100}, {100, 100}, {300, 100}, {0, 400}, {399, 1}})
        expect_capacity({.N = 400,
                         .K = 3,
                         .num_experts = 12,
                         .expert_groups = groups,
                         .num_scopes = 2,
                         .capacity = 400 * 3 / groups / 2,
                         .first = first,
                         .T = T,
                         .ordered = ordered});
}

TEST(BalanceParity, CapacityWithManyRowsOrManyCounters) {
  for (const bool ordered : {false, true}) {
    expect_capacity(
        {.N = 20000, .K = 4, .num_experts = 64, .num_scopes = 3, .capacity = 400, .ordered = ordered});
    expect_capacity(
        {.N = 3000, .K = 8, .num_experts = 512, .num_scopes = 100, .capacity = 1, .ordered = ordered});
    // One expert takes everything.
    expect_capacity({.N = 3000, .K = 1, .num_experts = 1, .capacity = 2500, .ordered = ordered});
  }
}

}  // namespace
}  // namespace moesaic::test
