// Collectives between ranks on GPUs (threads of this process; several share a GPU when there are fewer) against the same on
// the CPU: sums are taken in the same order, so everything is bit-equal.

#include <gmock/gmock.h>

#include "comm/collectives.h"
#include "launch/launch.h"
#include "ops/elementwise/elementwise.h"
#include "support/parity.h"
#include "support/process_ranks.h"

namespace moesaic::test {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  int64_t count = 1000;  // elements of a rank's part
  DType type = DType::f32;
};

/// Runs the collectives on this rank and returns all memory of it.
Bytes run(Rank& rank, const Case& c, int repeats) {
  const DeviceKind kind = rank.device->kind();
  const int64_t n = rank.world_size;
  std::vector<int64_t> all(static_cast<size_t>(n));
  for (int64_t r = 0; r < n; ++r) all[static_cast<size_t>(r)] = r;
  const auto group = rank.communicator(all), second = rank.communicator(all);
  Program g("collectives", kind);
  const Slot slot = g.slot("tensors");
  Bytes memory;
  const auto tensor = [&](const std::string& name, Shape shape, DType type) {
    const auto at = round_up(static_cast<int64_t>(memory.size()), 256);
    memory.resize(static_cast<size_t>(at + shape.numel() * size_of(type)));
    std::byte* to = memory.data() + at;
    const auto values = fresh_randn(shape.numel(), stream_of(name) + static_cast<uint64_t>(rank.rank));
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const float x = values[static_cast<size_t>(i)];
      const auto integer = static_cast<int32_t>(1000 * x);
      const bf16 narrow(x);
      const void* from = type == DType::f32    ? static_cast<const void*>(&x)
                         : type == DType::bf16 ? static_cast<const void*>(&narrow)
                                               : static_cast<const void*>(&integer);
      std::memcpy(to + i * size_of(type), from, static_cast<size_t>(size_of(type)));
    }
    return g.external(slot, at, name, type, shape);
  };
  const int64_t count = c.count;
  const Handle part = tensor("part", {count}, c.type), gathered = tensor("gathered", {n * count}, c.type),
               in_place = tensor("in place", {n * count}, c.type),
               whole = tensor("whole", {n * count}, c.type), scattered = tensor("scattered", {count}, c.type),
               reduced = tensor("reduced", {n * count}, c.type),
               in_place_sum = tensor("in place sum", {n * count}, c.type),
               numbers = tensor("numbers", {count}, DType::i32),
               totals = tensor("totals", {count}, DType::i32),
               others = tensor("others", {std::max<int64_t>(n - 1, 1) * count}, c.type),
               summed = tensor("summed", {count}, c.type);
  comm::all_gather(g, Stream::comm, *group, part, gathered, "gathered");
  comm::all_gather_in_place(g, Stream::reduce, *second, in_place, "in place");
  comm::reduce_scatter(g, Stream::comm, *group, whole, scattered, "scattered");
  comm::reduce_scatter_in_place(g, Stream::reduce, *second, in_place_sum, "in place sum");
  comm::all_reduce(g, Stream::comm, *group, whole, reduced, "reduced");
  comm::all_reduce(g, Stream::reduce, *second, numbers, totals, "totals");
  if (n > 1) {  // a reduce_scatter in two halves
    comm::exchange_parts(g, Stream::comm, *group, whole, others, "others");
    ops::sum_parts(g, Stream::compute,
                   {.own = g.view(whole, rank.rank * count, {count}),
                    .others = others,
                    .add = part,
                    .y = summed,
                    .rank = rank.rank});
  }
  // Heads: [rows, n, width] of each rank -> [n rows, width] of its own column.
  const int64_t rows = 6, width = 24;
  const Handle heads = tensor("heads", {2, rows, n * width}, c.type),
               columns = tensor("columns", {2, n * rows, width}, c.type);
  BlockCopy blocks{.outer = 2, .rows = rows, .width = width * size_of(c.type)};
  for (int64_t r = 0; r < n; ++r) {
    blocks.send_offset.push_back(r * blocks.width);
    blocks.recv_offset.push_back(r * rows * blocks.width);
  }
  blocks.send_pitch = n * blocks.width, blocks.send_outer = rows * blocks.send_pitch;
  blocks.recv_pitch = blocks.width, blocks.recv_outer = n * rows * blocks.width;
  comm::all_to_all_blocks(g, Stream::comm, *group, heads, columns, {blocks}, "heads");
  // Rows: rank r sends (r + p) % 4 rows to rank p, the last ones past the receiver's capacity.
  const int64_t row_width = c.type == DType::bf16 ? 40 : 17, capacity = std::max<int64_t>(1, 2 * n - 2);
  const Handle send_offsets = tensor("send offsets", {n + 1}, DType::i32),
               recv_offsets = tensor("recv offsets", {n + 1}, DType::i32);
  const auto offsets = [&](Handle h, const auto& rows_of) {
    auto* at = reinterpret_cast<int32_t*>(memory.data() + g.info(h).offset);
    at[0] = 0;
    for (int64_t p = 0; p < n; ++p)
      at[p + 1] =
          static_cast<int32_t>(std::min<int64_t>(at[p] + rows_of(p), h == recv_offsets ? capacity : 1 << 20));
  };
  offsets(send_offsets, [&](int64_t p) { return (rank.rank + p) % 4; });
  offsets(recv_offsets, [&](int64_t p) { return (rank.rank + p) % 4; });
  const Handle send_rows = tensor("send rows", {4 * n, row_width}, c.type),
               recv_rows = tensor("recv rows", {capacity, row_width}, c.type);
  comm::all_to_all_rows(g, Stream::comm, *group, send_rows, send_offsets, recv_rows, recv_offsets, 1, "rows");

  const Plan plan(std::move(g));
  const auto bytes = static_cast<int64_t>(memory.size());
  std::byte* device = rank.device->arena().allocate(Purpose::buffers, "tensors", bytes);
  rank.device->store(device, memory.data(), bytes);
  for (int i = 0; i < repeats; ++i) rank.device->replay(plan, {nullptr, device});
  rank.device->fetch(memory.data(), device, bytes);
  for (const auto* one : {&group, &second}) (*one)->forget_memory();
  rank.control.barrier();
  rank.device->arena().release(Purpose::buffers);
  return memory;
}

/// The same of `n` ranks that are threads.
std::vector<Bytes> run(DeviceKind kind, int64_t n, const Case& c, int repeats) {
  RunConfig config;
  config.device = kind;
  config.threads = 1;
  config.launcher = Launcher::none;
  std::vector<Bytes> results(static_cast<size_t>(n));
  run_ranks(config, n, [&](Rank& rank) { results[static_cast<size_t>(rank.rank)] = run(rank, c, repeats); });
  return results;
}

TEST(CollectivesParity, AreBitEqualToTheCpu) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  for (const int64_t n : {1, 2, 3, 4, 8})
    for (const DType type : {DType::f32, DType::bf16})
      for (const int64_t count : {1, 7, 1000, 100003}) {
        SCOPED_TRACE(fmt::format("n {} {} count {}", n, name_of(type), count));
        const Case c{.count = count, .type = type};
        const auto cpu = run(DeviceKind::cpu, n, c, 1), gpu = run(DeviceKind::cuda, n, c, 1);
        for (size_t r = 0; r < cpu.size(); ++r) EXPECT_EQ(cpu[r], gpu[r]) << "rank " << r;
      }
}

// In place sums make the result depend on every repeat, and marks come round more than once (mover.h).
TEST(CollectivesParity, HoldOverManyRepeats) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  const Case c{.count = 5000, .type = DType::bf16};
  for (const int64_t n : {2, 8})
    EXPECT_EQ(run(DeviceKind::cpu, n, c, 100), run(DeviceKind::cuda, n, c, 100)) << n;
}

TEST(ChildOfCollectivesParity, DISABLED_Work) {
  as_child([](const std::string& ranks) {
    RunConfig config;
    config.device = DeviceKind::cuda;
    run_ranks(config, std::stoll(ranks), [](Rank& rank) {
      for (const DType type : {DType::f32, DType::bf16})
        for (const int64_t count : {7, 100003}) {
          const Case c{.count = count, .type = type};
          const int repeats = count == 7 ? 100 : 1;
          const auto expected = run(DeviceKind::cpu, rank.world_size, c, repeats);
          require<Error>(run(rank, c, repeats) == expected[static_cast<size_t>(rank.rank)],
                         "{} count {}: not what CPU threads have", name_of(type), count);
        }
    });
  });
}

/// Ranks that are processes with these variables.
void run_processes(int64_t n, ProcessRanks::Variables variables = {}) {
  variables["MOESAIC_TEST_SEED"] = std::to_string(test_seed());
  ProcessRanks ranks(n, "ChildOfCollectivesParity.DISABLED_Work", std::to_string(n), variables);
  EXPECT_TRUE(ranks.wait(120));
  for (int64_t r = 0; r < n; ++r) EXPECT_EQ(ranks.code(r), kDone) << ranks.output(r);
}

TEST(CollectivesParity, BetweenProcessesAreBitEqualToTheCpu) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  for (const int64_t n : {2, 4}) run_processes(n);
}

// Each process says that it is on a machine of its own: NCCL joins them.
TEST(CollectivesParity, BetweenMachinesAreBitEqualToTheCpu) {
  const int gpus = num_cuda_devices();
  if (gpus < 2) GTEST_SKIP() << "needs two GPUs";
  run_processes(gpus, {{"MOESAIC_MACHINE", "RANK"}});
}

TEST(CollectivesParity, MachinesThatShareAGpuAreRefused) {
  const int gpus = num_cuda_devices();
  if (gpus == 0) GTEST_SKIP() << "no GPU";
  ProcessRanks ranks(gpus + 1, "ChildOfCollectivesParity.DISABLED_Work", std::to_string(gpus + 1),
                     {{"MOESAIC_MACHINE", "RANK"}});
  EXPECT_TRUE(ranks.wait(120));
  std::string said;  // by the first to find it; the others may only see that one leave
  for (int r = 0; r <= gpus; ++r) said += ranks.output(r);
  EXPECT_THAT(said, testing::HasSubstr("share a GPU, in a group that spans machines"));
}

}  // namespace
}  // namespace moesaic::test
