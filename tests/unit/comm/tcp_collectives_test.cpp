// Every collective over sockets gives, bit for bit, what it gives between threads: many at once, in different orders, small
// (which offers bring along) and large (which are asked for, and do not fit the system's buffers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "base/rng.h"
#include "tcp_ranks.h"

namespace moesaic::test {
namespace {

using testing::Each;

uint64_t draw(uint64_t bound, uint64_t a, uint64_t b, uint64_t c = 0) {
  return random_below(bound, 2000 + a, b, c);
}

/// One collective of one rank: posted on a communicator, it fills a buffer of its own.
struct Call {
  std::vector<float> send, receive;
  std::vector<int32_t> send_offsets, recv_offsets;
  std::vector<BlockCopy> copies;
  std::function<Pending(Communicator&, uint64_t sequence, Call&)> post;
  int64_t source = -1, destination = -1;  // of a message
  Pending pending = nullptr;
  bool done = false;
};

std::vector<float> numbers(uint64_t q, int64_t rank, int64_t count) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back(random_normal(q, static_cast<uint64_t>(rank), static_cast<uint64_t>(i)));
  return all;
}

/// Elements per part: mostly few, now and then above what an offer brings, or above what a socket holds.
int64_t draw_count(uint64_t q) {
  const auto few = static_cast<int64_t>(draw(300, q, 1));
  if (q % 40 == 39) return 300'000 + few;
  return q % 8 == 7 ? 20'000 + few : 2 * few;
}

int64_t rows_between(uint64_t q, int64_t from, int64_t to) {
  const auto rows =
      static_cast<int64_t>(draw(9, q, static_cast<uint64_t>(100 + from), static_cast<uint64_t>(to)));
  return rows < 4 ? 0 : q % 8 == 7 ? rows * 1000 : rows;
}

void make_rows(Call& call, uint64_t q, int64_t me, int64_t size) {
  constexpr int64_t kWidth = 6;
  call.send_offsets = call.recv_offsets = {0};
  for (int64_t p = 0; p < size; ++p) {
    call.send_offsets.push_back(call.send_offsets.back() + static_cast<int32_t>(rows_between(q, me, p)));
    call.recv_offsets.push_back(call.recv_offsets.back() + static_cast<int32_t>(rows_between(q, p, me)));
  }
  call.send = numbers(q, me, call.send_offsets.back() * kWidth);
  const int64_t asked = call.recv_offsets.back(), room = q % 2 ? asked : asked / 2;  // past it: left out
  call.receive.assign(static_cast<size_t>(room * kWidth), 0);
  call.post = [room](Communicator& c, uint64_t sequence, Call& x) {
    return c.all_to_all_rows(sequence, x.send.data(), x.send_offsets.data(), x.receive.data(),
                             x.recv_offsets.data(), room, kWidth * 4);
  };
}

void make_blocks(Call& call, uint64_t q, int64_t me, int64_t size) {
  const int64_t width = 8, outer = 3, height = q % 8 == 7 ? 1000 : 3;
  BlockCopy copy{.outer = outer, .rows = height, .width = width};
  for (int64_t p = 0; p < size; ++p) {
    copy.send_offset.push_back(p * width);
    copy.recv_offset.push_back(p * height * width);
  }
  copy.send_pitch = size * width, copy.send_outer = height * copy.send_pitch;
  copy.recv_pitch = width, copy.recv_outer = size * height * width;
  call.copies = {copy};
  call.send = numbers(q, me, outer * height * size * width / 4);
  call.receive.assign(call.send.size(), 0);
  call.post = [](Communicator& c, uint64_t sequence, Call& x) {
    return c.all_to_all_blocks(sequence, x.send.data(), x.receive.data(), x.copies);
  };
}

Call make_call(uint64_t q, int64_t me, int64_t size) {
  const int64_t count = draw_count(q), elements = size * count;
  const auto bytes = count * 4;
  const auto root = static_cast<int64_t>(draw(static_cast<uint64_t>(size), q, 4));
  Call call;
  const auto exchange = [&](int64_t sent, int64_t received, auto post) {
    call.send = numbers(q, me, sent);
    call.receive.assign(static_cast<size_t>(received), 0);
    call.post = post;
  };
  switch (draw(13, q, 3)) {
    case 0:
      exchange(count, count, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.all_reduce(sequence, x.send.data(), x.receive.data(), count, DType::f32);
      });
      break;
    case 1:
      exchange(count, count, [=](Communicator& c, uint64_t sequence, Call& x) {  // as bf16, twice as many
        return c.all_reduce(sequence, x.send.data(), x.receive.data(), 2 * count, DType::bf16);
      });
      for (float& value : call.send) {  // two finite bf16 in each
        const bf16 pair[] = {bf16(value), bf16(value * 0.7f)};
        std::memcpy(&value, pair, 4);
      }
      break;
    case 2:
      exchange(count, count, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.all_reduce(sequence, x.send.data(), x.receive.data(), count, DType::i32);
      });
      for (float& value : call.send) value = std::bit_cast<float>(static_cast<int32_t>(1000 * value));
      break;
    case 3:
      exchange(elements, count, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.reduce_scatter(sequence, x.send.data(), x.receive.data(), count, DType::f32);
      });
      break;
    case 4:  // in place
      exchange(0, 0, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.reduce_scatter(sequence, x.receive.data(), x.receive.data() + me * count, count, DType::f32);
      });
      call.receive = numbers(q, me, elements);
      break;
    case 5:
      exchange(count, elements, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.all_gather(sequence, x.send.data(), x.receive.data(), bytes);
      });
      break;
    case 6: {  // in place
      exchange(0, elements, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.all_gather(sequence, x.receive.data() + me * count, x.receive.data(), bytes);
      });
      const auto mine = numbers(q, me, count);
      std::copy(mine.begin(), mine.end(), call.receive.begin() + me * count);
      break;
    }
    case 7:
      if (q % 2) {
        exchange(elements, elements - count, [=](Communicator& c, uint64_t sequence, Call& x) {
          return c.exchange_parts(sequence, x.send.data(), x.receive.data(), bytes);
        });
        break;
      }
      exchange(elements, elements, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.all_to_all(sequence, x.send.data(), x.receive.data(), bytes);
      });
      break;
    case 8:
      make_blocks(call, q, me, size);
      break;
    case 9:
      make_rows(call, q, me, size);
      break;
    case 10:
      exchange(me == root ? count : 0, count, [=](Communicator& c, uint64_t sequence, Call& x) {
        return c.broadcast(sequence, me == root ? x.send.data() : nullptr, x.receive.data(), bytes, root);
      });
      break;
    case 11:
      exchange(0, 0, [](Communicator& c, uint64_t sequence, Call&) { return c.barrier(sequence); });
      break;
    default: {
      const int64_t to = (root + 1) % size;
      if (to == root || (me != root && me != to)) break;
      call.source = root, call.destination = to;
      if (me == root)
        exchange(count, 0, [=](Communicator& c, uint64_t sequence, Call& x) {
          return c.send(sequence, x.send.data(), bytes, to);
        });
      else
        exchange(0, count, [=](Communicator& c, uint64_t sequence, Call& x) {
          return c.receive(sequence, x.receive.data(), bytes, root);
        });
    }
  }
  return call;
}

/// Posts the calls in an order of this rank's own, asks those posted again and again, and gives what they received.
std::vector<std::vector<float>> run(Communicator& group, uint64_t first, uint64_t count, int64_t rank) {
  std::vector<Call> calls;
  std::vector<uint64_t> sequences;
  for (uint64_t q = first; q < first + count; ++q) {
    calls.push_back(make_call(q, rank, group.size()));
    const Call& call = calls.back();
    sequences.push_back(!call.post        ? 0
                        : call.source < 0 ? group.take_sequence()
                                          : group.take_pair_sequence(call.source, call.destination));
  }
  std::vector<size_t> order(calls.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[draw(i + 1, first, static_cast<uint64_t>(rank), i)]);
  size_t posted = 0, done = 0;
  for (Backoff backoff; done < calls.size();) {
    if (posted < calls.size()) {
      const size_t i = order[posted++];
      if (calls[i].post)
        calls[i].pending = calls[i].post(group, sequences[i], calls[i]);
      else
        calls[i].done = true, ++done;
    } else {
      backoff.wait();
    }
    for (Call& call : calls)
      if (call.pending && !call.done && call.pending()) call.done = true, ++done;
  }
  std::vector<std::vector<float>> received;
  for (Call& call : calls) received.push_back(std::move(call.receive));
  return received;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

class TcpCollectives : public testing::TestWithParam<int64_t> {};

TEST_P(TcpCollectives, ManyAtOnceInAnyOrderEqualThoseOfThreads) {
  constexpr uint64_t kCalls = 80;
  ThreadWorld world(GetParam(), 60);
  std::atomic<int> wrong{0};
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    const auto tcp = sockets.everyone(), threads = everyone(world, rank);
    for (uint64_t round = 0; round < 2; ++round) {
      const auto a = run(*tcp, kCalls * round, kCalls, rank), b = run(*threads, kCalls * round, kCalls, rank);
      for (size_t i = 0; i < a.size(); ++i) wrong += !same_bits(a[i], b[i]);
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TcpCollectives, testing::Values(1, 2, 3, 5));

TEST(TcpCommunicators, OfOneGroupAndOfOthersAreIndependent) {
  ThreadWorld world(4, 20);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    const std::vector<int64_t> row{rank / 2 * 2, rank / 2 * 2 + 1}, column{rank % 2, rank % 2 + 2};
    const std::unique_ptr<Communicator> groups[] = {sockets.group(row), sockets.group(row),
                                                    sockets.group(column), sockets.everyone()};
    EXPECT_EQ(groups[0]->rank(), rank % 2);
    EXPECT_EQ(groups[2]->rank(), rank / 2);
    for (int round = 0; round < 20; ++round) {
      std::array<std::array<int32_t, 4>, 4> all{};
      std::array<int32_t, 4> mine{};
      std::vector<Pending> pending;
      for (int i = 0; i < 4; ++i) {
        const auto g = static_cast<size_t>((i + rank + round) % 4);  // each rank begins with another group
        mine[g] = static_cast<int32_t>(100 * static_cast<int64_t>(g) + 10 * round + rank);
        pending.push_back(groups[g]->all_gather(groups[g]->take_sequence(), &mine[g], all[g].data(), 4));
      }
      for (const Pending& p : pending) complete(p);
      const auto value = [&](int64_t g, int64_t r) { return static_cast<int32_t>(100 * g + 10 * round + r); };
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(all[0][static_cast<size_t>(i)], value(0, row[static_cast<size_t>(i)]));
        EXPECT_EQ(all[1][static_cast<size_t>(i)], value(1, row[static_cast<size_t>(i)]));
        EXPECT_EQ(all[2][static_cast<size_t>(i)], value(2, column[static_cast<size_t>(i)]));
      }
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(all[3][static_cast<size_t>(i)], value(3, i));
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpCommunicators, NeedNotBeMadeAtTheSameTime) {
  // Rank 1 comes late to a group whose collectives the others have posted already.
  ThreadWorld world(3, 20);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto group = sockets.everyone();
    std::vector<float> send(200'000, static_cast<float>(rank)), receive(send.size());
    for (int round = 0; round < 3; ++round) {
      complete(group->all_reduce(group->take_sequence(), send.data(), receive.data(), 200'000, DType::f32));
      EXPECT_THAT(receive, Each(3.0f));
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpCommunicators, TheSendBufferIsFreeOnceComplete) {
  ThreadWorld world(3, 30);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    const auto group = sockets.everyone();
    for (const int64_t count : {1, 40'000}) {
      std::vector<int32_t> mine(static_cast<size_t>(count)), all(static_cast<size_t>(3 * count));
      for (int32_t round = 0; round < 100; ++round) {
        std::fill(mine.begin(), mine.end(), round + static_cast<int32_t>(rank));
        complete(group->all_gather(group->take_sequence(), mine.data(), all.data(), 4 * count));
        std::fill(mine.begin(), mine.end(), -1);
        for (int32_t p = 0; p < 3; ++p) ASSERT_EQ(all[static_cast<size_t>(p * count + count - 1)], round + p);
      }
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpMesh, ClosesConnectionsOfStrangersAndGoesOn) {
  ThreadWorld world(2, 20);
  std::atomic<int> port{0};
  const auto thrown = on_threads(world, [&](int64_t rank) {
    ThreadControl control(world, rank);
    // Rank 0's port is found by listening to what it tells the others.
    class Listening : public ThreadControl {
     public:
      Listening(ThreadWorld& w, int64_t r, std::atomic<int>& p) : ThreadControl(w, r), port_(p) {}
      std::vector<std::string> all_gather_at(const std::string& where, const std::string& mine) override {
        const auto all = ThreadControl::all_gather_at(where, mine);
        if (port_ == 0) port_ = std::stoi(all[0]);
        return all;
      }
      std::atomic<int>& port_;
    } listening(world, rank, port);
    const auto mesh =
        std::make_shared<tcp::TcpMesh>(tcp::Job{.control = listening,
                                                .describe = [&](int64_t r) { return world.describe(r); },
                                                .hosts = {"127.0.0.1", "127.0.0.1"},
                                                .token = 42});
    std::vector<tcp::Socket> strangers;
    if (rank == 1)
      for (int i = 0; i < 5; ++i) {
        strangers.push_back(tcp::start_connect({"127.0.0.1", port}));
        tcp::wait_for(strangers.back(), true, 5);
        const std::string text(static_cast<size_t>(10 * i), 'x');
        strangers.back().send(text.data(), static_cast<int64_t>(text.size()));
      }
    const auto group = mesh->communicator({0, 1});
    for (int i = 0; i < 50; ++i) complete(group->barrier(group->take_sequence()));
    control.barrier();
    if (rank == 1) {
      char byte;
      tcp::wait_for(strangers[4], false, 5);
      EXPECT_EQ(strangers[4].receive(&byte, 1), -1);
    }
    control.barrier();
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace moesaic::test
