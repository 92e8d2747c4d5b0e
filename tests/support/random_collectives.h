#pragma once
// Collectives of all kinds, drawn at random: many at once, small (which offers between processes bring along) and large (which
// are asked for, and do not fit a system's buffers). What they receive is the same on every backend, bit for bit.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "base/dtype.h"
#include "base/rng.h"
#include "comm/communicator.h"
#include "device/cpu/backoff.h"

namespace moesaic::test {

inline uint64_t draw(uint64_t bound, uint64_t a, uint64_t b, uint64_t c = 0) {
  return random_below(bound, 2000 + a, b, c);
}

/// One collective of one rank: posted on a communicator, it fills a buffer of its own.
struct RandomCall {
  std::vector<float> send, receive;
  std::vector<int32_t> send_offsets, recv_offsets;
  std::vector<BlockCopy> copies;
  std::function<Pending(Communicator&, uint64_t sequence, RandomCall&)> post;
  int64_t source = -1, destination = -1;  // of a message
  Pending pending = nullptr;
  bool done = false;
};

inline std::vector<float> numbers(uint64_t q, int64_t rank, int64_t count) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back(random_normal(q, static_cast<uint64_t>(rank), static_cast<uint64_t>(i)));
  return all;
}

/// Elements per part: mostly few, now and then above what an offer brings, or above what a socket holds.
inline int64_t draw_count(uint64_t q) {
  const auto few = static_cast<int64_t>(draw(300, q, 1));
  if (q % 40 == 39) return 300'000 + few;
  return q % 8 == 7 ? 20'000 + few : 2 * few;
}

inline int64_t rows_between(uint64_t q, int64_t from, int64_t to) {
  const auto rows =
      static_cast<int64_t>(draw(9, q, static_cast<uint64_t>(100 + from), static_cast<uint64_t>(to)));
  return rows < 4 ? 0 : q % 8 == 7 ? rows * 1000 : rows;
}

inline void make_rows(RandomCall& call, uint64_t q, int64_t me, int64_t size) {
  constexpr int64_t kWidth = 6;
  call.send_offsets = call.recv_offsets = {0};
  for (int64_t p = 0; p < size; ++p) {
    call.send_offsets.push_back(call.send_offsets.back() + static_cast<int32_t>(rows_between(q, me, p)));
    call.recv_offsets.push_back(call.recv_offsets.back() + static_cast<int32_t>(rows_between(q, p, me)));
  }
  call.send = numbers(q, me, call.send_offsets.back() * kWidth);
  const int64_t asked = call.recv_offsets.back(), room = q % 2 ? asked : asked / 2;  // past it: left out
  call.receive.assign(static_cast<size_t>(room * kWidth), 0);
  call.post = [room](Communicator& c, uint64_t sequence, RandomCall& x) {
    return c.all_to_all_rows(sequence, x.send.data(), x.send_offsets.data(), x.receive.data(),
                             x.recv_offsets.data(), room, kWidth * 4);
  };
}

inline void make_blocks(RandomCall& call, uint64_t q, int64_t me, int64_t size) {
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
  call.post = [](Communicator& c, uint64_t sequence, RandomCall& x) {
    return c.all_to_all_blocks(sequence, x.send.data(), x.receive.data(), x.copies);
  };
}

inline RandomCall make_call(uint64_t q, int64_t me, int64_t size) {
  const int64_t count = draw_count(q), elements = size * count;
  const auto bytes = count * 4;
  const auto root = static_cast<int64_t>(draw(static_cast<uint64_t>(size), q, 4));
  RandomCall call;
  const auto exchange = [&](int64_t sent, int64_t received, auto post) {
    call.send = numbers(q, me, sent);
    call.receive.assign(static_cast<size_t>(received), 0);
    call.post = post;
  };
  switch (draw(13, q, 3)) {
    case 0:
      exchange(count, count, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
        return c.all_reduce(sequence, x.send.data(), x.receive.data(), count, DType::f32);
      });
      break;
    case 1:
      exchange(count, count,
               [=](Communicator& c, uint64_t sequence, RandomCall& x) {  // as bf16, twice as many
                 return c.all_reduce(sequence, x.send.data(), x.receive.data(), 2 * count, DType::bf16);
               });
      for (float& value : call.send) {  // two finite bf16 in each
        const bf16 pair[] = {bf16(value), bf16(value * 0.7f)};
        std::memcpy(&value, pair, 4);
      }
      break;
    case 2:
      exchange(count, count, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
        return c.all_reduce(sequence, x.send.data(), x.receive.data(), count, DType::i32);
      });
      for (float& value : call.send) value = std::bit_cast<float>(static_cast<int32_t>(1000 * value));
      break;
    case 3:
      exchange(elements, count, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
        return c.reduce_scatter(sequence, x.send.data(), x.receive.data(), count, DType::f32);
      });
      break;
    case 4:  // in place
      exchange(0, 0, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
        return c.reduce_scatter(sequence, x.receive.data(), x.receive.data() + me * count, count, DType::f32);
      });
      call.receive = numbers(q, me, elements);
      break;
    case 5:
      exchange(count, elements, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
        return c.all_gather(sequence, x.send.data(), x.receive.data(), bytes);
      });
      break;
    case 6: {  // in place
      exchange(0, elements, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
        return c.all_gather(sequence, x.receive.data() + me * count, x.receive.data(), bytes);
      });
      const auto mine = numbers(q, me, count);
      std::copy(mine.begin(), mine.end(), call.receive.begin() + me * count);
      break;
    }
    case 7:
      if (q % 2) {
        exchange(elements, elements - count, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
          return c.exchange_parts(sequence, x.send.data(), x.receive.data(), bytes);
        });
        break;
      }
      exchange(elements, elements, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
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
      exchange(me == root ? count : 0, count, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
        return c.broadcast(sequence, me == root ? x.send.data() : nullptr, x.receive.data(), bytes, root);
      });
      break;
    case 11:
      exchange(0, 0, [](Communicator& c, uint64_t sequence, RandomCall&) { return c.barrier(sequence); });
      break;
    default: {
      const int64_t to = (root + 1) % size;
      if (to == root || (me != root && me != to)) break;
      call.source = root, call.destination = to;
      if (me == root)
        exchange(count, 0, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
          return c.send(sequence, x.send.data(), bytes, to);
        });
      else
        exchange(0, count, [=](Communicator& c, uint64_t sequence, RandomCall& x) {
          return c.receive(sequence, x.receive.data(), bytes, root);
        });
    }
  }
  return call;
}

/// Posts the calls in an order of this rank's own, asks those posted again and again, and gives what they received.
inline std::vector<std::vector<float>> run_collectives(Communicator& group, uint64_t first, uint64_t count,
                                                       int64_t rank) {
  std::vector<RandomCall> calls;
  std::vector<uint64_t> sequences;
  for (uint64_t q = first; q < first + count; ++q) {
    calls.push_back(make_call(q, rank, group.size()));
    const RandomCall& call = calls.back();
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
    for (RandomCall& call : calls)
      if (call.pending && !call.done && call.pending()) call.done = true, ++done;
  }
  std::vector<std::vector<float>> received;
  received.reserve(calls.size());
  for (RandomCall& call : calls) received.push_back(std::move(call.receive));
  return received;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

}  // namespace moesaic::test
