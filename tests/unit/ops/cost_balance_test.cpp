// Costs of load and capacity: integers for the most part, counted like any number.
#include "ops/balance/balance.h"
#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;

TEST(Cost, OfLoad) {
  constexpr int64_t T = 4, K = 2;
  expect_cost({8, 24}, [](int64_t E) {
    CostCheck c;
    ops::BalanceCount args{.indices = c.count_up({T, K}, 8, 3), .probs = c.random({T, E})};
    args.scope = c.ints("scope", {T}, {0, 1, 1, 0});
    args.counts = c.ints("counts", {2, E}), args.prob_sums = c.blank({2, E});
    ops::balance_count(c.program(), kStream, args);
    return c.left_out([&] {
      Numbers counts(static_cast<size_t>(2 * E)), sums = counts;
      for (int64_t t = 0; t < T; ++t) {
        const int64_t base = E * c.get_ints(args.scope)[size_t(t)];
        for (const Counted x : c.row(args.indices, t))
          if (x > -1) counts[static_cast<size_t>(base + int64_t(x.value()))] += 1;
        const Numbers probs = c.row(args.probs, t);
        for (size_t x = 0; x < probs.size(); ++x) sums[static_cast<size_t>(base) + x] += probs[x];
      }
      return Outputs{{args.counts, counts}, {args.prob_sums, sums}};
    });
  });
  expect_cost({8, 24}, [](int64_t E) {
    CostCheck c;
    const ops::AddCounts args{c.count_up({3, E}, 100), c.count_up({E}, 100, 7)};
    ops::add_counts(c.program(), kStream, args);
    return c.left_out([&] {
      Numbers totals = c.numbers(args.totals);
      for (int64_t row = 0; row < 3; ++row)
        for (size_t x = 0; x < totals.size(); ++x) totals[x] += c.row(args.counts, row)[x];
      return Outputs{{args.totals, totals}};
    });
  });
}

TEST(Cost, OfLosses) {
  constexpr double K = 2, N = 10;
  for (const int64_t groups : {0, 4})
    expect_cost({8, 24}, [&](int64_t E) {
      CostCheck c;
      ops::BalanceLoss args{
          .counts = c.count_up({2, E}, 9), .prob_sums = c.random({2, E}), .loss = c.random({1})};
      args.grad = c.blank({2, E}), args.coef = 0.5f;
      args.top_k = int64_t(K), args.tokens_per_scope = int64_t(N), args.expert_groups = groups;
      ops::balance_loss(c.program(), kStream, args);
      return c.left_out([&] {
        const Numbers counts = c.numbers(args.counts), sums = c.numbers(args.prob_sums);
        const size_t size = groups == 0 ? 1 : static_cast<size_t>(E / groups);
        Numbers grad;
        Counted loss;
        for (size_t first = 0; first < counts.size(); first += size) {
          Counted count, probs;
          for (size_t i = first; i < first + size; ++i) count += counts[i], probs += sums[i];
          const Counted f = static_cast<double>(E) / (K * static_cast<double>(size) * N) * count;
          loss += f * probs / N;
          grad.insert(grad.end(), size, args.coef * f / N);
        }
        return Outputs{{args.grad, grad}, {args.loss, {c.numbers(args.loss)[0] + args.coef * loss}}};
      });
    });
  expect_cost({8, 24}, [](int64_t T) {
    CostCheck c;
    const ops::ZLoss args{c.random({T}), c.random({1}), 0.5f};
    ops::z_loss(c.program(), kStream, args);
    return c.left_out([&] {
      Counted squares;
      for (const Counted lse : c.numbers(args.lse)) squares += lse * lse;
      return Outputs{{args.loss, {c.numbers(args.loss)[0] + args.coef * squares}}};
    });
  });
}

TEST(Cost, OfCapacity) {
  constexpr int64_t K = 2, E = 3, kRoom = 3, kFirst = 2;
  for (const bool ordered : {false, true})
    expect_cost({8, 24}, [&](int64_t N) {
      CostCheck c;
      const int64_t T = N - kFirst;  // the last ones, so that all are looked at
      ops::Capacity args{.all_indices = c.count_up({N, K}, E, 2), .all_scope = c.count_up({N}, 1)};
      if (ordered) args.order = c.count_up({N}, int32_t(N));
      args.kept = c.ints("kept", {T, K}), args.dropped = c.ints("dropped", {1}, {5});
      args.first = kFirst, args.num_experts = E, args.num_scopes = 1, args.capacity = kRoom;
      ops::capacity(c.program(), kStream, args);
      return c.left_out([&] {
        Numbers used(E), kept;
        Counted dropped = c.numbers(args.dropped)[0];
        for (int64_t t = 0; t < N; ++t)
          for (const Counted x : c.row(args.all_indices, t)) {
            const bool present = x > -1;
            Counted& rows = used[static_cast<size_t>(x.value())];
            const bool fits = rows < kRoom;
            rows += 1;
            if (t < kFirst) continue;
            kept.push_back(present && fits ? x : -1);
            dropped += present && !fits ? 1 : 0;
          }
        return Outputs{{args.kept, kept}, {args.dropped, {dropped}}};
      });
    });
}

}  // namespace
}  // namespace moesaic::test
