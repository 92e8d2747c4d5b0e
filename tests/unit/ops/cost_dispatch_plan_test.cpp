// Cost of the dispatch plan: integers, counted like any number.
#include "ops/dispatch_plan/dispatch_plan.h"

#include <set>

#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;

/// Balanced: token t goes to one expert of rank t mod e and one of the next rank.
TEST(Cost, OfDispatchPlans) {
  constexpr int64_t e = 4, K = 2, kLocal = 2, kRank = 1;
  for (const bool a2a : {false, true})
    expect_cost({8, 24}, [&](int64_t T) {
      CostCheck c;
      std::vector<int32_t> indices;
      for (int64_t token = 0; token < e * T; ++token)
        for (int64_t k = 0; k < K; ++k)
          indices.push_back(int32_t((token + k) % e * kLocal + token / e % kLocal));
      ops::DispatchPlan args{.indices = c.ints("indices", {e * T, K}, indices), .e = e, .rank = kRank};
      for (int32_t x = 0; x < e * kLocal; ++x)
        args.owner.push_back(x / kLocal), args.local.push_back(x % kLocal);
      args.num_local_experts = kLocal;
      args.offsets = c.ints("offsets", {kLocal + 1}), args.overflow = c.ints("overflow", {1}, {0});
      args.row_recv = c.ints("row_recv", {T * K}), args.row_slot = c.ints("row_slot", {T * K});
      args.slot_row = c.ints("slot_row", {e * T, K});
      if (a2a) {
        args.send_token = c.ints("send_token", {T * K}), args.send_offsets = c.ints("send", {e + 1});
        args.recv_offsets = c.ints("recv", {e + 1}), args.recv_token = c.ints("recv_token", {T * K});
        args.token_send = c.ints("token_send", {T, e});
      }
      ops::dispatch_plan(c.program(), kStream, args);
      return c.left_out([&] {
        Numbers rows(kLocal), received(e), sent(e);
        bool fits = true;                            // every count is compared with its bound
        std::set<std::pair<int64_t, int32_t>> seen;  // token and rank: one comparison finds out
        const auto first_time = [&](int64_t token, int32_t rank) {
          return Counted(seen.insert({token, rank}).second ? 1 : 0) > 0;
        };
        for (int64_t token = 0; token < e * T; ++token)
          for (const Counted x : c.row(args.indices, token)) {
            if (!(x > -1)) continue;
            const int32_t owner = args.owner[static_cast<size_t>(x.value())];
            if (Counted(owner) == kRank) {
              Counted& row = rows[static_cast<size_t>(args.local[static_cast<size_t>(x.value())])];
              row += 1;
              fits = fits && !(row > T * K);
              if (a2a && first_time(token, owner))
                fits = fits && !((received[size_t(token / T)] += 1) > T * K);
            }
            if (a2a && token / T == kRank && first_time(e * T + token, owner))
              fits = fits && !((sent[size_t(owner)] += 1) > T * K);
          }
        const auto offsets = [](const Numbers& counts) {
          Numbers list{0};
          for (const Counted n : counts) list.push_back(list.back().value() + n.value());
          return list;
        };
        EXPECT_TRUE(fits);
        Outputs outputs{{args.offsets, offsets(rows)}};
        if (a2a)
          outputs.push_back({args.recv_offsets, offsets(received)}),
              outputs.push_back({args.send_offsets, offsets(sent)});
        return outputs;
      });
    });
}

}  // namespace
}  // namespace moesaic::test
