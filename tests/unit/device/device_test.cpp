// Arena, the null device, and what an op may touch.
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/random_program.h"

namespace moesaic::test {
namespace {

constexpr Stream kCompute = Stream::compute;

TEST(Arena, CountsByPurposeAndRemembersTheMost) {
  const auto device = make_cpu_device({});
  Arena& arena = device->arena();
  auto* a = arena.allocate_array<float>(Purpose::parameters, "a", 100);
  std::byte* b = arena.allocate(Purpose::activations, "b", 1);
  std::byte* empty = arena.allocate(Purpose::workspace, "empty", 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 256, 0u);
  EXPECT_NE(empty, nullptr);
  EXPECT_EQ(a[99], 0.0f);
  EXPECT_EQ(arena.bytes(Purpose::parameters), 512);
  EXPECT_EQ(arena.bytes(Purpose::activations), 256);
  EXPECT_EQ(arena.bytes(), 1024);
  arena.release(Purpose::activations);
  EXPECT_EQ(arena.bytes(), 768);
  EXPECT_EQ(arena.high_water(), 1024);
  EXPECT_EQ(arena.allocations().size(), 2u);
  arena.allocate(Purpose::activations, "b", 2000);
  EXPECT_EQ(arena.high_water(), 768 + 2048);
  int64_t sum = 0;
  for (const Arena::Allocation& allocation : arena.allocations()) sum += allocation.bytes;
  EXPECT_EQ(sum, arena.bytes());
}

TEST(Arena, MemoryThatCannotBeHadIsADeviceErrorWithItsSize) {
  const auto device = make_cpu_device({});
  try {
    device->arena().allocate(Purpose::buffers, "huge", int64_t{1} << 60);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("1024.00 PiB"), std::string::npos) << error.what();
  }
  EXPECT_EQ(device->arena().bytes(), 0);
}

TEST(Arena, EveryPurposeHasAName) {
  for (const Purpose p : {Purpose::parameters, Purpose::gradients, Purpose::optimizer, Purpose::activations,
                          Purpose::workspace, Purpose::batch, Purpose::buffers})
    EXPECT_GT(name_of(p).size(), 4u);
}

TEST(NullDevice, RunsNothingCountsEverythingAndFetchesZeros) {
  Program g("null", DeviceKind::null);
  const Handle x = g.external(g.slot("x"), 0, "x", DType::f32, {4});
  int taken = 0;
  g.add({.name = "op",
         .streams = {kCompute},
         .accesses = {out(x)},
         .cost = {.operations = 7, .bytes = 16},
         .run = [](const OpContext&) { FAIL() << "the null device ran an op"; }});
  g.add({.name = "collective",
         .streams = {Stream::comm},
         .accesses = {inout(x)},
         .cost = {.sent = 8},
         .post = [](const OpContext&, uint64_t) -> Pending {
           ADD_FAILURE() << "the null device posted a collective";
           return [] { return true; };
         },
         .take_sequence = [&taken] { return static_cast<uint64_t>(++taken); }});
  const Plan plan(std::move(g));
  const auto device = make_null_device();
  EXPECT_EQ(device->kind(), DeviceKind::null);
  std::byte* memory = device->arena().allocate(Purpose::buffers, "x", int64_t{1} << 50);  // takes none
  device->replay(plan, {nullptr, memory});
  device->synchronize();
  float values[4] = {1, 2, 3, 4};
  device->store(memory, values, 16);
  device->fetch(values, memory, 16);
  EXPECT_EQ(values[3], 0);
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(device->totals().nodes, 2);
  EXPECT_EQ(device->totals().operations, 7);
  EXPECT_EQ(device->totals().sent, 8);
  EXPECT_EQ(device->arena().high_water(), int64_t{1} << 50);
}

/// Runs a node that declares in(x) and out(y), then reaches as `body` does.
void reach(const std::function<void(const OpContext&, Handle x, Handle y, Handle z)>& body) {
  Program g("reach", DeviceKind::cpu);
  const Slot slot = g.slot("memory");
  const Handle x = g.external(slot, 0, "x", DType::f32, {4}), y = g.external(slot, 16, "y", DType::i32, {4}),
               z = g.external(slot, 32, "z", DType::f32, {4});
  g.add(
      {.name = "reacher", .streams = {kCompute}, .accesses = {in(x), out(y)}, .run = [=](const OpContext& c) {
         body(c, x, y, z);
       }});
  const Plan plan(std::move(g));
  std::vector<std::byte> memory(64);
  make_cpu_device({})->replay(plan, {nullptr, memory.data()});
}

TEST(OpContext, GivesWhatWasDeclared) {
  reach([](const OpContext& c, Handle x, Handle y, Handle) {
    EXPECT_EQ(reinterpret_cast<const std::byte*>(c.out<int32_t>(y)) -
                  reinterpret_cast<const std::byte*>(c.in<float>(x)),
              16);
    EXPECT_EQ(c.in_bytes(x), reinterpret_cast<const std::byte*>(c.in<float>(x)));
    EXPECT_EQ(c.shape(x).numel(), 4);
    EXPECT_EQ(c.node().name, "reacher");
  });
}

TEST(OpContextDeathTest, RefusesWhatWasNotDeclared) {
  EXPECT_DEATH(reach([](const OpContext& c, Handle, Handle, Handle z) { c.in<float>(z); }),
               "reacher: z was not declared");
  EXPECT_DEATH(reach([](const OpContext& c, Handle x, Handle, Handle) { c.out<float>(x); }),
               "reacher: x was not declared with this mode");
  EXPECT_DEATH(reach([](const OpContext& c, Handle, Handle y, Handle) { c.inout<int32_t>(y); }),
               "not declared");
  EXPECT_DEATH(reach([](const OpContext& c, Handle x, Handle, Handle) { c.in<int32_t>(x); }), "holds f32");
}

TEST(ProgramDeathTest, ANodeNeedsAStreamAndOneBody) {
  Program g("bad", DeviceKind::cpu);
  const auto nothing = [](const OpContext&) {};
  EXPECT_DEATH(g.add({.name = "no stream", .run = nothing}), "no stream");
  EXPECT_DEATH(g.add({.name = "no body", .streams = {kCompute}}), "no body");
  EXPECT_DEATH(
      g.add({.name = "no tensor", .streams = {kCompute}, .accesses = {in(Handle{})}, .run = nothing}),
      "an access without a tensor");
}

}  // namespace
}  // namespace moesaic::test
