#include "bench/alone.h"

#include <algorithm>

#include "ops/initialize/initialize.h"

namespace moesaic {
namespace {

constexpr int kRepeats = 12;

}  // namespace

Alone::Alone(Rank& rank, std::string name)
    : rank_(rank), program_(std::move(name), rank.device->kind()), slot_(program_.slot("tensors")) {}

Handle Alone::tensor(DType type, Shape shape) {
  const Handle h = program_.external(slot_, bytes_, "tensor", type, shape);
  bytes_ = round_up(bytes_ + program_.info(h).bytes(), 256);
  return h;
}

double Alone::seconds() {
  Device& device = *rank_.device;
  Arena& arena = device.arena();
  std::byte* memory = arena.allocate(Purpose::buffers, "bench tensors", bytes_);
  fill(memory);
  const Plan plan(std::move(program_));
  std::byte* workspace = arena.allocate(Purpose::buffers, "bench workspace", plan.workspace_bytes());
  const auto nodes = plan.program().nodes().size();
  std::vector<double> times;
  device.replay(plan, {workspace, memory});
  device.synchronize();
  device.set_trace([&](const OpEvent& e) { times.push_back(e.end - e.start); });
  rank_.control.barrier();
  for (int i = 0; i < kRepeats; ++i) device.replay(plan, {workspace, memory});
  device.synchronize();
  device.set_trace({});
  arena.release(Purpose::buffers);
  std::vector<double> repeats(kRepeats);
  for (size_t i = 0; i < times.size(); ++i) repeats[i / nodes] += times[i];
  std::nth_element(repeats.begin(), repeats.begin() + kRepeats / 2, repeats.end());
  return repeats[kRepeats / 2];
}

void Alone::fill(std::byte* memory) {
  Program g("fill", rank_.device->kind());
  const Slot slot = g.slot("tensors");
  ops::initialize(g, Stream::compute,
                  {.y = g.external(slot, 0, "all", DType::bf16, {bytes_ / 2}), .seed = 1, .std = 1});
  const Plan plan(std::move(g));
  rank_.device->replay(plan, {nullptr, memory});
  rank_.device->synchronize();
}

}  // namespace moesaic
