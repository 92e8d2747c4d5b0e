// Collectives as ops of a program: what they move, between which handles, and what they cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/collectives.h"
#include "device/device.h"
#include "support/thread_ranks.h"

namespace moesaic::test {
namespace {

constexpr Stream kComm = Stream::comm;
constexpr int64_t kSize = 3;

/// A program over one slot of floats, with a tensor of whole numbers wherever one is asked for.
struct Board {
  Board() : g("board", DeviceKind::cpu), slot(g.slot("memory")) {}
  Handle floats(std::vector<float> values) {
    return add(DType::f32, values.data(), static_cast<int64_t>(values.size()));
  }
  Handle ints(std::vector<int32_t> values) {
    return add(DType::i32, values.data(), static_cast<int64_t>(values.size()));
  }
  Handle add(DType type, const void* values, int64_t count) {
    const auto at = static_cast<int64_t>(memory.size());
    memory.resize(static_cast<size_t>(at + 4 * count));
    std::copy_n(static_cast<const std::byte*>(values), 4 * count, memory.begin() + at);
    return g.external(slot, at, "x", type, {count});
  }
  std::vector<float> get(Handle h) const {
    const auto* values = reinterpret_cast<const float*>(memory.data() + g.info(h).offset);
    return {values, values + g.shape(h).numel()};
  }
  void run(const CpuOptions& options) {
    const Plan plan(g);
    const auto device = make_cpu_device(options);
    device->replay(plan, {nullptr, memory.data()});
    device->synchronize();
  }
  Program g;
  Slot slot;
  std::vector<std::byte> memory;
};

float number(int64_t rank, int64_t i) {
  return static_cast<float>(10 * rank + i);
}
std::vector<float> numbers(int64_t rank, int64_t count) {
  std::vector<float> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(number(rank, i));
  return v;
}

TEST(CommPrograms, MoveWhatTheySayOnAnyStreamsInAnyOrder) {
  for (const ReplayMode mode : {ReplayMode::inline_, ReplayMode::chaos}) {
    ThreadWorld world(kSize, 20);
    const auto thrown = on_threads(world, [&](int64_t me) {
      const auto group = everyone(world, me);
      Board b;
      const std::vector<float> none2(2, -1), none6(6, -1);
      const Handle mine = b.floats(numbers(me, 2)), wide = b.floats(numbers(me, 6));
      const Handle gathered = b.floats(none6), scattered = b.floats(none2), summed = b.floats(none6);
      const Handle in_place = b.floats(numbers(me, 6)), part = b.floats(numbers(me, 6));
      const Handle blocks = b.floats(none6), rows = b.floats(none6);
      comm::all_gather(b.g, kComm, *group, mine, gathered, "mine");
      comm::reduce_scatter(b.g, Stream::reduce, *group, wide, scattered, "wide");
      comm::all_reduce(b.g, kComm, *group, wide, summed, "wide");
      comm::all_gather_in_place(b.g, Stream::reduce, *group, in_place, "in place");
      comm::reduce_scatter_in_place(b.g, Stream::copy, *group, part, "part");
      BlockCopy copy{.width = 8};
      for (int64_t p = 0; p < kSize; ++p)
        copy.send_offset.push_back(8 * p), copy.recv_offset.push_back(8 * p);
      comm::all_to_all_blocks(b.g, Stream::copy, *group, wide, blocks, {copy}, "blocks");
      // Rank r sends r rows of one float to rank 0, none to the others.
      const auto r = static_cast<int32_t>(me);
      const Handle send_offsets = b.ints({0, r, r, r});
      const Handle recv_offsets = me == 0 ? b.ints({0, 0, 1, 3}) : b.ints({0, 0, 0, 0});
      const Handle column = b.g.view(wide, 0, {6, 1}), received = b.g.view(rows, 0, {6, 1});
      comm::all_to_all_rows(b.g, kComm, *group, column, send_offsets, received, recv_offsets, 1, "rows");
      b.run({.mode = mode, .chaos_seed = static_cast<uint64_t>(me)});
      for (int64_t p = 0; p < kSize; ++p)
        for (int64_t i = 0; i < 2; ++i) {
          const auto at = static_cast<size_t>(2 * p + i);
          EXPECT_EQ(b.get(gathered)[at], number(p, i));
          EXPECT_EQ(b.get(blocks)[at], number(p, 2 * me + i));
          EXPECT_EQ(b.get(in_place)[at], number(p, 2 * p + i));  // each part from the rank that owns it
          const float sum = number(0, 2 * p + i) + number(1, 2 * p + i) + number(2, 2 * p + i);
          EXPECT_EQ(b.get(summed)[at], sum);
          EXPECT_EQ(b.get(part)[at], p == me ? sum : number(me, 2 * p + i));
          if (p != me) continue;
          EXPECT_EQ(b.get(scattered)[static_cast<size_t>(i)], sum);
        }
      if (me == 0) {
        const auto got = b.get(rows);
        EXPECT_THAT(std::vector<float>(got.begin(), got.begin() + 3), testing::ElementsAre(10, 20, 21));
      }
    });
    EXPECT_THAT(thrown, testing::Each(""));
  }
}

TEST(CommPrograms, CostWhatCrossesLinksAndMemory) {
  const auto group = make_null_communicator(1, kSize);
  Board b;
  const Handle two = b.floats(numbers(0, 2)), six = b.floats(numbers(0, 6)), other = b.floats(numbers(0, 6)),
               offsets = b.ints({0, 0, 0, 0});
  const double small = 8, large = 24;  // bytes of two and of six
  const auto last = [&] { return b.g.nodes().back().cost; };
  const auto expect = [&](double bytes, double sent, double operations = 0) {
    EXPECT_DOUBLE_EQ(last().operations, operations);
    EXPECT_EQ(last().work, Work::comm);
    EXPECT_DOUBLE_EQ(last().bytes, bytes);
    EXPECT_DOUBLE_EQ(last().sent, sent);
  };
  comm::all_gather(b.g, kComm, *group, two, six, "");  // its part to each of the two others
  expect(2 * large, 2 * small);
  comm::all_gather_in_place(b.g, kComm, *group, six, "");
  expect(2 * large, 2 * small);
  comm::reduce_scatter(b.g, kComm, *group, six, two, "");  // two of its three parts
  expect(2 * large, 2 * small, 4);                         // adds two floats twice
  comm::reduce_scatter_in_place(b.g, kComm, *group, six, "");
  expect(2 * large, 2 * small, 4);
  const Handle four = b.floats(numbers(0, 4));
  comm::exchange_parts(b.g, kComm, *group, six, four, "");  // as reduce_scatter, but nothing is its own
  expect(2 * 2 * small, 2 * small);
  comm::all_reduce(b.g, kComm, *group, six, other, "");  // as one of each
  expect(4 * large, 4 * small, 4);
  BlockCopy copy{.outer = 1, .rows = 2, .width = 4, .send_offset = {0, 8, 16}, .recv_offset = {0, 8, 16}};
  comm::all_to_all_blocks(b.g, kComm, *group, six, other, {copy}, "");
  expect(2 * large, 2 * small);
  comm::all_to_all_rows(b.g, kComm, *group, b.g.view(six, 0, {3, 2}), offsets, b.g.view(other, 0, {3, 2}),
                        offsets, 3, "");  // 3 rows of 8 bytes
  expect(2 * large, 2 * small);
}

TEST(CommPrograms, TakeTheirSequenceNumbersWhenEnqueued) {
  ThreadWorld world(1, 5);
  const auto group = everyone(world, 0);
  Board b;
  const Handle x = b.floats({1, 2}), y = b.floats({0, 0});
  comm::all_gather(b.g, kComm, *group, x, y, "");
  const Plan plan(b.g);
  EXPECT_EQ(group->take_sequence(), 1u);  // recording took none
  const auto device = make_cpu_device({});
  device->replay(plan, {nullptr, b.memory.data()});
  device->replay(plan, {nullptr, b.memory.data()});
  EXPECT_EQ(group->take_sequence(), 4u);
}

}  // namespace
}  // namespace moesaic::test
