// Every collective between thread ranks against a plain loop over the ranks, many at once, posted in different orders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/rng.h"
#include "comm/meeting/meeting_place.h"
#include "comm/meeting/shared_boards.h"
#include "support/thread_ranks.h"

namespace moesaic::test {
namespace {

using Bytes = std::vector<std::byte>;

uint64_t draw(uint64_t bound, uint64_t a, uint64_t b, uint64_t c = 0) {
  return random_below(bound, 1000 + a, b, c);
}

template <class T>
T value(uint64_t collective, int64_t rank, int64_t i) {
  const auto r = static_cast<uint64_t>(rank), at = static_cast<uint64_t>(i);
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<int32_t>(draw(2000, collective, r, at)) - 1000;
  else
    return T(random_normal(collective, r, at));
}

template <class T>
std::vector<T> values(uint64_t collective, int64_t rank, int64_t count) {
  std::vector<T> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(value<T>(collective, rank, i));
  return all;
}

template <class T>
Bytes bytes_of(const std::vector<T>& v) {
  const auto* begin = reinterpret_cast<const std::byte*>(v.data());
  return {begin, begin + v.size() * sizeof(T)};
}

/// Sum over the ranks in rank order, FP32 (or integer), rounded once.
template <class T>
std::vector<T> sum_of(uint64_t collective, int64_t size, int64_t count) {
  using Sum = std::conditional_t<std::is_same_v<T, int32_t>, int32_t, float>;
  std::vector<T> sums;
  for (int64_t i = 0; i < count; ++i) {
    Sum sum = static_cast<Sum>(value<T>(collective, 0, i));
    for (int64_t r = 1; r < size; ++r) sum += static_cast<Sum>(value<T>(collective, r, i));
    sums.push_back(static_cast<T>(sum));
  }
  return sums;
}

/// One collective on one rank: its buffers, how it is posted, and what must lie in `receive` afterwards.
struct Call {
  Bytes send, receive, expected;
  std::vector<int32_t> send_offsets, recv_offsets;
  std::vector<BlockCopy> copies;
  uint64_t sequence = 0;
  std::function<Pending(Call&)> post;
  Pending pending = nullptr;
  bool done = false;
};

constexpr int kKinds = 13;

template <class T>
void reduction(Call& call, Communicator& c, uint64_t q, int kind, DType type) {
  const auto count = static_cast<int64_t>(draw(q % 16 == 0 ? 1500 : 200, q, 1));  // sums go in blocks of 1024
  const int64_t size = c.size(), me = c.rank();
  if (kind == 0) {  // all_reduce
    call.send = bytes_of(values<T>(q, me, count));
    call.expected = bytes_of(sum_of<T>(q, size, count));
    call.receive.resize(call.expected.size());
    call.post = [&c, count, type](Call& x) {
      return c.all_reduce(x.sequence, x.send.data(), x.receive.data(), count, type);
    };
    return;
  }
  const auto all = sum_of<T>(q, size, size * count);
  const std::vector<T> mine(all.begin() + me * count, all.begin() + (me + 1) * count);
  if (kind == 1) {  // reduce_scatter
    call.send = bytes_of(values<T>(q, me, size * count));
    call.expected = bytes_of(mine);
    call.receive.resize(call.expected.size());
    call.post = [&c, count, type](Call& x) {
      return c.reduce_scatter(x.sequence, x.send.data(), x.receive.data(), count, type);
    };
    return;
  }
  std::vector<T> whole = values<T>(q, me, size * count);  // in place: my part only changes
  call.receive = bytes_of(whole);
  std::copy(mine.begin(), mine.end(), whole.begin() + me * count);
  call.expected = bytes_of(whole);
  call.post = [&c, count, type, me](Call& x) {
    return c.reduce_scatter(x.sequence, x.receive.data(),
                            x.receive.data() + me * count * static_cast<int64_t>(sizeof(T)), count, type);
  };
}

/// Rows that rank `from` sends to rank `to`; often none.
int64_t rows_between(uint64_t q, int64_t from, int64_t to) {
  const uint64_t rows = draw(9, q, static_cast<uint64_t>(100 + from), static_cast<uint64_t>(to));
  return rows < 4 ? 0 : static_cast<int64_t>(rows);
}

void rows(Call& call, Communicator& c, uint64_t q) {
  constexpr int64_t kRow = 12;
  const int64_t size = c.size(), me = c.rank();
  call.send_offsets = call.recv_offsets = {0};
  for (int64_t p = 0; p < size; ++p) {
    call.send_offsets.push_back(call.send_offsets.back() + static_cast<int32_t>(rows_between(q, me, p)));
    call.recv_offsets.push_back(call.recv_offsets.back() + static_cast<int32_t>(rows_between(q, p, me)));
  }
  call.send = bytes_of(values<int32_t>(q, me, int64_t{call.send_offsets.back()} * kRow / 4));
  for (int64_t p = 0; p < size; ++p) {
    int64_t first = 0;
    for (int64_t before = 0; before < me; ++before) first += rows_between(q, p, before);
    for (int64_t i = 0; i < rows_between(q, p, me) * kRow / 4; ++i) {
      const Bytes word = bytes_of(std::vector{value<int32_t>(q, p, first * kRow / 4 + i)});
      call.expected.insert(call.expected.end(), word.begin(), word.end());
    }
  }
  // Every other time the receive buffer is too short: rows past it are left out.
  const auto asked = static_cast<int64_t>(call.recv_offsets.back());
  const int64_t room = q % 2 ? asked : asked / 2;
  call.expected.resize(static_cast<size_t>(room * kRow));
  call.receive.resize(call.expected.size());
  call.post = [&c, room](Call& x) {
    return c.all_to_all_rows(x.sequence, x.send.data(), x.send_offsets.data(), x.receive.data(),
                             x.recv_offsets.data(), room, kRow);
  };
}

/// [2, 3 rows, size pieces] on each rank -> [2, size * 3 rows, 1 piece]: pieces of columns become rows, as heads do.
void blocks(Call& call, Communicator& c, uint64_t q) {
  const int64_t size = c.size(), me = c.rank(), width = 8, outer = 2, height = 3;
  BlockCopy copy{.outer = outer, .rows = height, .width = width};
  for (int64_t p = 0; p < size; ++p) {
    copy.send_offset.push_back(p * width);
    copy.recv_offset.push_back(p * height * width);
  }
  copy.send_pitch = size * width, copy.send_outer = height * copy.send_pitch;
  copy.recv_pitch = width, copy.recv_outer = size * height * width;
  call.copies = {copy};
  call.send = bytes_of(values<int32_t>(q, me, outer * height * size * width / 4));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t p = 0; p < size; ++p)
      for (int64_t i = 0; i < height; ++i)
        for (int64_t w = 0; w < width / 4; ++w) {
          const Bytes word =
              bytes_of(std::vector{value<int32_t>(q, p, ((o * height + i) * size + me) * width / 4 + w)});
          call.expected.insert(call.expected.end(), word.begin(), word.end());
        }
  call.receive.resize(call.expected.size());
  call.post = [&c](Call& x) {
    return c.all_to_all_blocks(x.sequence, x.send.data(), x.receive.data(), x.copies);
  };
}

Call make_call(Communicator& c, uint64_t q) {
  const int64_t size = c.size(), me = c.rank();
  const auto count = static_cast<int64_t>(draw(200, q, 2));
  Call call;
  const auto kind = static_cast<int>(draw(kKinds, q, 3));
  const auto append = [&](int64_t rank, int64_t first, int64_t number) {
    for (int64_t i = first; i < first + number; ++i) {
      const Bytes word = bytes_of(std::vector{value<int32_t>(q, rank, i)});
      call.expected.insert(call.expected.end(), word.begin(), word.end());
    }
  };
  call.sequence = kind < 12 ? c.take_sequence() : 0;
  switch (kind) {
    case 0:
    case 1:
    case 2:
      reduction<float>(call, c, q, kind, DType::f32);
      break;
    case 3:
    case 4:
    case 5:
      reduction<bf16>(call, c, q, kind - 3, DType::bf16);
      break;
    case 6:
      reduction<int32_t>(call, c, q, 0, DType::i32);
      break;
    case 7: {  // all_gather, every other time in place
      for (int64_t p = 0; p < size; ++p) append(p, 0, count);
      const Bytes mine = bytes_of(values<int32_t>(q, me, count));
      call.receive.resize(call.expected.size());
      if (q % 2) {
        std::copy(mine.begin(), mine.end(), call.receive.begin() + me * 4 * count);
        call.post = [&c, count, me](Call& x) {
          return c.all_gather(x.sequence, x.receive.data() + me * 4 * count, x.receive.data(), 4 * count);
        };
      } else {
        call.send = mine;
        call.post = [&c, count](Call& x) {
          return c.all_gather(x.sequence, x.send.data(), x.receive.data(), 4 * count);
        };
      }
      break;
    }
    case 8:  // all_to_all, every other time without this rank's own part
      call.send = bytes_of(values<int32_t>(q, me, size * count));
      for (int64_t p = 0; p < size; ++p)
        if (q % 2 == 0 || p != me) append(p, me * count, count);
      call.receive.resize(call.expected.size());
      if (q % 2) {
        call.post = [&c, count](Call& x) {
          return c.exchange_parts(x.sequence, x.send.data(), x.receive.data(), 4 * count);
        };
        break;
      }
      call.post = [&c, count](Call& x) {
        return c.all_to_all(x.sequence, x.send.data(), x.receive.data(), 4 * count);
      };
      break;
    case 9:
      blocks(call, c, q);
      break;
    case 10:
      rows(call, c, q);
      break;
    case 11: {  // broadcast; barrier when there is nothing to send
      const auto root = static_cast<int64_t>(draw(static_cast<uint64_t>(size), q, 4));
      if (count < 20) {
        call.post = [&c](Call& x) { return c.barrier(x.sequence); };
        break;
      }
      append(root, 0, count);
      if (me == root) call.send = bytes_of(values<int32_t>(q, me, count));
      call.receive.resize(call.expected.size());
      call.post = [&c, count, root](Call& x) {
        return c.broadcast(x.sequence, x.send.empty() ? nullptr : x.send.data(), x.receive.data(), 4 * count,
                           root);
      };
      break;
    }
    default: {  // a message from one rank to another
      const auto from = static_cast<int64_t>(draw(static_cast<uint64_t>(size), q, 5));
      const int64_t to = (from + 1) % size;
      if (from == to || (me != from && me != to)) {
        call.post = [](Call&) -> Pending { return [] { return true; }; };
        break;
      }
      call.sequence = c.take_pair_sequence(from, to);
      if (me == from) {
        call.send = bytes_of(values<int32_t>(q, me, count));
        call.post = [&c, count, to](Call& x) { return c.send(x.sequence, x.send.data(), 4 * count, to); };
      } else {
        append(from, 0, count);
        call.receive.resize(call.expected.size());
        call.post = [&c, count, from](Call& x) {
          return c.receive(x.sequence, x.receive.data(), 4 * count, from);
        };
      }
    }
  }
  return call;
}

/// Ranks, and whether their boards lie in memory that processes share.
class Collectives : public testing::TestWithParam<std::tuple<int64_t, bool>> {};

/// This rank's end of the group of all, on boards that `shared` finds.
std::unique_ptr<Communicator> everyone_at(ThreadWorld& world, int64_t rank, SharedBoards& shared,
                                          std::unique_ptr<Mover>& mover) {
  std::vector<int64_t> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  mover = make_cpu_mover();
  return make_meeting_communicator(MeetingPlace(world.control(rank), ranks, static_cast<size_t>(rank),
                                                shared.group(ranks), *mover, nullptr));
}

TEST_P(Collectives, ManyAtOnceInAnyOrderEqualAPlainLoop) {
  constexpr uint64_t kCalls = 150;  // more than a ring has cells
  const bool in_shared_memory = std::get<1>(GetParam());
#ifdef __SANITIZE_THREAD__
  if (in_shared_memory)
    GTEST_SKIP() << "each rank maps the boards elsewhere, and tsan tells memory by its address";
#endif
  ThreadWorld world(std::get<0>(GetParam()), 30);
  std::atomic<int> wrong{0};
  const auto thrown = on_threads(world, [&](int64_t rank) {
    std::optional<SharedBoards> shared;
    std::unique_ptr<Mover> mover;
    if (in_shared_memory) shared.emplace(world.control(rank), "this machine");
    const auto group = shared ? everyone_at(world, rank, *shared, mover) : everyone(world, rank);
    for (uint64_t round = 0; round < 2; ++round) {
      std::vector<Call> calls;
      for (uint64_t i = 0; i < kCalls; ++i) calls.push_back(make_call(*group, 1000 * round + i));
      // Each rank posts in its own order, and asks those posted so far again and again.
      std::vector<size_t> order(calls.size());
      std::iota(order.begin(), order.end(), 0);
      for (size_t i = order.size() - 1; i > 0; --i)
        std::swap(order[i], order[draw(i + 1, round, static_cast<uint64_t>(rank), i)]);
      size_t posted = 0, done = 0;
      for (Backoff backoff; done < calls.size();) {
        if (posted < calls.size()) {
          Call& next = calls[order[posted++]];
          next.pending = next.post(next);
        } else {
          backoff.wait();
        }
        for (Call& call : calls)
          if (call.pending && !call.done && call.pending()) call.done = true, ++done;
      }
      for (const Call& call : calls) wrong += call.receive != call.expected;
    }
    world.control(rank).barrier();  // nobody's boards go while others look at them
  });
  EXPECT_THAT(thrown, testing::Each(""));
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Collectives,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8), testing::Bool()));

TEST(Communicators, OfTheSameGroupAreIndependent) {
  ThreadWorld world(2, 5);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const auto first = everyone(world, rank), second = everyone(world, rank);
    const int32_t mine[] = {static_cast<int32_t>(rank), static_cast<int32_t>(10 + rank)};
    int32_t a[2] = {}, b[2] = {};
    // Rank 1 begins with the other one.
    Communicator* order[] = {rank ? second.get() : first.get(), rank ? first.get() : second.get()};
    Pending pending[2];
    for (int i = 0; i < 2; ++i) {
      const bool is_first = order[i] == first.get();
      pending[i] =
          order[i]->all_gather(order[i]->take_sequence(), &mine[is_first ? 0 : 1], is_first ? a : b, 4);
      pending[i]();
    }
    for (const Pending& p : pending) complete(p);
    EXPECT_THAT(a, testing::ElementsAre(0, 1));
    EXPECT_THAT(b, testing::ElementsAre(10, 11));
  });
  EXPECT_THAT(thrown, testing::Each(""));
}

TEST(Communicators, OfDifferentGroupsMeetApart) {
  ThreadWorld world(4, 5);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const std::vector<int64_t> row{rank / 2 * 2, rank / 2 * 2 + 1}, column{rank % 2, rank % 2 + 2};
    const auto rows = world.communicator(row, rank), columns = world.communicator(column, rank);
    EXPECT_EQ(rows->rank(), rank % 2);
    EXPECT_EQ(columns->rank(), rank / 2);
    for (const auto* group : {&rows, &columns}) {
      const auto mine = static_cast<int32_t>(rank);
      int32_t all[2] = {};
      complete((*group)->all_gather((*group)->take_sequence(), &mine, all, 4));
      const auto& ranks = group == &rows ? row : column;
      EXPECT_EQ(all[0], ranks[0]);
      EXPECT_EQ(all[1], ranks[1]);
    }
  });
  EXPECT_THAT(thrown, testing::Each(""));
}

TEST(Collectives, TheSendBufferIsFreeOnceComplete) {
  // Every rank overwrites its send buffer at once; the others must have taken theirs before.
  ThreadWorld world(4, 30);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const auto group = everyone(world, rank);
    int32_t mine = 0, all[4] = {};
    for (int32_t round = 0; round < 2000; ++round) {
      mine = round + static_cast<int32_t>(rank);
      complete(group->all_gather(group->take_sequence(), &mine, all, 4));
      mine = -1;
      for (int32_t p = 0; p < 4; ++p) ASSERT_EQ(all[p], round + p);
    }
  });
  EXPECT_THAT(thrown, testing::Each(""));
}

TEST(NullCommunicator, IsCompleteAtOnce) {
  const auto group = make_null_communicator(2, 4);
  EXPECT_EQ(group->rank(), 2);
  EXPECT_EQ(group->size(), 4);
  EXPECT_TRUE(group->barrier(group->take_sequence())());
  EXPECT_TRUE(group->all_gather(0, nullptr, nullptr, 1 << 20)());
}

}  // namespace
}  // namespace moesaic::test
