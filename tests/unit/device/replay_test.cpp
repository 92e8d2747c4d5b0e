// Replay on the CPU: any order that the plans allow gives the inline result, within a program and across programs.
#include <gtest/gtest.h>

#include <cmath>

#include "support/random_program.h"

namespace moesaic::test {
namespace {

constexpr Stream kCompute = Stream::compute, kComm = Stream::comm;
constexpr uint64_t kSeeds = 100;

CpuOptions chaos(uint64_t seed) {
  return {.mode = ReplayMode::chaos, .chaos_seed = seed};
}

TEST(Chaos, GivesTheInlineResultAcrossProgramsThatShareMemory) {
  for (uint64_t set = 0; set < 12; ++set) {
    std::vector<Plan> plans;
    for (uint64_t p = 0; p < 5; ++p) plans.emplace_back(random_program(100 * set + p, {.num_nodes = 12}));
    const auto expected = run_all(plans, {});
    EXPECT_EQ(run_all(plans, {.poison = true}), expected) << "set " << set;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed)
      ASSERT_EQ(run_all(plans, chaos(seed)), expected) << "set " << set << " chaos seed " << seed;
  }
}

TEST(Chaos, AProgramThatReadsOnlyLeavesEarlierWritesInForce) {
  // write on compute; read on comm (another program); write on reduce (a third) must wait for both.
  const auto one = [](Stream stream, Mode mode) {
    Program g("one", DeviceKind::cpu);
    const Handle x = g.external(g.slot("a"), 0, "x", DType::f32, {8});
    const Handle y = g.external(g.slot("b"), 0, "y", DType::f32, {8});
    if (mode == Mode::in)
      add_mixer(g, "read", {stream}, {in(x), inout(y)});
    else
      add_mixer(g, "write " + std::string(name_of(stream)), {stream}, {{x, mode}});
    return Plan(std::move(g));
  };
  std::vector<Plan> plans;
  for (int round = 0; round < 3; ++round)
    for (const auto& [stream, mode] : {std::pair{kCompute, Mode::out},
                                       {kComm, Mode::in},
                                       {Stream::reduce, Mode::inout},
                                       {Stream::copy, Mode::in}})
      plans.push_back(one(stream, mode));
  const auto expected = run_all(plans, {});
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) EXPECT_EQ(run_all(plans, chaos(seed)), expected);
}

TEST(Chaos, ADroppedWaitChangesANumber) {
  size_t dropped = 0, seen = 0;
  for (uint64_t program = 1; program <= 12; ++program) {
    const Plan plan(random_program(program, {.num_nodes = 16}));
    const auto expected = run_all({plan, plan}, {});
    for (size_t k = 0; k < plan.waits().size(); ++k) {
      const Plan broken = plan.without_wait(k);
      ++dropped;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed)
        if (run_all({broken, plan}, chaos(seed)) != expected) {
          ++seen;
          break;
        }
    }
  }
  EXPECT_GT(dropped, 60u);
  // A write that nothing reads afterwards may come at any time; these programs have few of them.
  EXPECT_GE(static_cast<double>(seen), 0.95 * static_cast<double>(dropped));
}

TEST(Chaos, OpsOfOneStreamStayInOrder) {
  Program g("order", DeviceKind::cpu);
  auto order = std::make_shared<std::vector<int>>();
  for (int i = 0; i < 20; ++i)
    g.add({.name = "node", .streams = {static_cast<Stream>(i % 2)}, .run = [order, i](const OpContext&) {
             order->push_back(i);
           }});
  const Plan plan(std::move(g));
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    order->clear();
    const auto device = make_cpu_device(chaos(seed));
    device->replay(plan, {nullptr});
    EXPECT_TRUE(order->empty());  // runs when asked
    device->synchronize();
    ASSERT_EQ(order->size(), 20u);
    for (int parity : {0, 1}) {
      std::vector<int> mine;
      for (int i : *order)
        if (i % 2 == parity) mine.push_back(i);
      EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    }
    orders.insert(*order);
  }
  EXPECT_GT(orders.size(), 3u);
}

TEST(Poison, ShowsWhatAnOpLeavesOutOfItsOutput) {
  Program g("half", DeviceKind::cpu);
  const Handle t = g.temp("t", DType::f32, {4}), y = g.external(g.slot("y"), 0, "y", DType::f32, {4});
  g.add({.name = "writes half", .streams = {kCompute}, .accesses = {out(t)}, .run = [t](const OpContext& c) {
           c.out<float>(t)[0] = c.out<float>(t)[1] = 1;
         }});
  g.add(
      {.name = "copies", .streams = {kComm}, .accesses = {in(t), out(y)}, .run = [t, y](const OpContext& c) {
         std::copy_n(c.in<float>(t), 4, c.out<float>(y));
       }});
  const Plan plan(std::move(g));
  const CpuOptions plain, poison{.poison = true};
  for (const CpuOptions& options : {plain, poison, chaos(1)}) {
    const auto device = make_cpu_device(options);
    auto* temps = reinterpret_cast<float*>(
        device->arena().allocate(Purpose::workspace, "temps", plan.workspace_bytes()));
    float result[4] = {};
    device->replay(plan, {reinterpret_cast<std::byte*>(temps), reinterpret_cast<std::byte*>(result)});
    device->synchronize();
    const bool poisons = options.poison || options.mode == ReplayMode::chaos;
    EXPECT_EQ(result[1], 1);
    EXPECT_EQ(std::isnan(result[2]), poisons);
    EXPECT_EQ(std::isnan(temps[0]), poisons) << "after its last use";
  }
}

TEST(Poison, ComesAfterTheLastReaderWhateverTheOrder) {
  // Two readers on two streams, and a next tenant of the first half of the memory.
  Program g("readers", DeviceKind::cpu);
  const Slot slot = g.slot("a");
  g.slot("b");
  const auto external = [&](int64_t i) { return g.external(slot, 32 * i, "x", DType::f32, {8}); };
  const Handle t = g.temp("t", DType::f32, {128}), u = g.temp("u", DType::f32, {64});
  add_mixer(g, "write", {kCompute}, {out(t)});
  add_mixer(g, "read first", {kCompute}, {in(g.view(t, 0, {64})), out(external(0))});
  add_mixer(g, "read second", {kComm}, {in(g.view(t, 64, {64})), out(external(1))});
  add_mixer(g, "tenant", {kCompute}, {out(u)});
  add_mixer(g, "read tenant", {Stream::reduce}, {in(u), out(external(2))});
  const std::vector<Plan> plans{Plan(g), Plan(g)};
  ASSERT_EQ(plans[0].offset(t), plans[0].offset(u));
  const auto expected = run_all(plans, {});
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) EXPECT_EQ(run_all(plans, chaos(seed)), expected);
}

TEST(CpuDevice, FetchAndStoreComeAfterWhatWasEnqueued) {
  Program g("add", DeviceKind::cpu);
  const Handle x = g.external(g.slot("x"), 0, "x", DType::f32, {1});
  g.add({.name = "increment", .streams = {kComm}, .accesses = {inout(x)}, .run = [x](const OpContext& c) {
           *c.inout<float>(x) += 1;
         }});
  const Plan plan(std::move(g));
  for (const CpuOptions& options : {CpuOptions{}, chaos(3)}) {
    const auto device = make_cpu_device(options);
    float memory = 1, value = 0;
    device->replay(plan, {nullptr, reinterpret_cast<std::byte*>(&memory)});
    device->fetch(&value, &memory, 4);
    EXPECT_EQ(value, 2);
    device->replay(plan, {nullptr, reinterpret_cast<std::byte*>(&memory)});
    value = 10;
    device->store(&memory, &value, 4);
    device->replay(plan, {nullptr, reinterpret_cast<std::byte*>(&memory)});
    device->synchronize();
    EXPECT_EQ(memory, 11);
  }
}

TEST(CpuDevice, TracesAndCountsEveryOp) {
  Program g("two", DeviceKind::cpu);
  const auto nothing = [](const OpContext&) {};
  g.add({.name = "first", .streams = {kCompute}, .cost = {.operations = 3, .bytes = 5}, .run = nothing});
  g.add({.name = "second", .streams = {kComm}, .cost = {.operations = 4, .sent = 2}, .run = nothing});
  const Plan plan(std::move(g));
  for (const CpuOptions& options : {CpuOptions{}, chaos(1)}) {
    const auto device = make_cpu_device(options);
    std::set<std::string> traced, told;
    device->set_trace([&](const OpEvent& event) {
      EXPECT_LE(event.start, event.end);
      traced.insert(event.node->name);
    });
    device->set_status([&](const std::string& name) { told.insert(name); });
    device->replay(plan, {nullptr});
    device->replay(plan, {nullptr});
    device->synchronize();
    EXPECT_EQ(traced, (std::set<std::string>{"first", "second"}));
    EXPECT_EQ(told, traced);
    EXPECT_EQ(device->totals().nodes, 4);
    EXPECT_EQ(device->totals().operations, 14);
    EXPECT_EQ(device->totals().bytes, 10);
    EXPECT_EQ(device->totals().sent, 4);
  }
}

TEST(CpuDevice, AnOpsExceptionComesOutOfTheDevice) {
  Program g("throws", DeviceKind::cpu);
  g.add({.name = "bad", .streams = {kCompute}, .run = [](const OpContext&) {
           throw std::runtime_error("bad");
         }});
  const Plan plan(std::move(g));
  EXPECT_THROW(make_cpu_device({})->replay(plan, {nullptr}), std::runtime_error);
  const auto device = make_cpu_device(chaos(1));
  device->replay(plan, {nullptr});
  EXPECT_THROW(device->synchronize(), std::runtime_error);
}

TEST(CpuDeviceDeathTest, EverySlotMustBeBound) {
  Program g("slots", DeviceKind::cpu);
  g.slot("a");
  const Plan plan(std::move(g));
  EXPECT_DEATH(make_cpu_device({})->replay(plan, {nullptr}), "2 slots, 1 are bound");
}

}  // namespace
}  // namespace moesaic::test
