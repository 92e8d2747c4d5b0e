#include "bench/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "device/cpu/threads.h"
#include "launch/launch.h"
#include "mesh/mesh.h"
#include "ops/matmul/matmul.h"

namespace moesaic {
namespace {

constexpr int64_t kWorkingSets[] = {256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
constexpr int64_t kMostBytes = 64 << 20;  // the largest of them; each repeat moves as many on each thread

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Least seconds of `work`, all ranks starting each repeat together.
template <class F>
double best_time(Rank& rank, int repeats, const F& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    rank.control.barrier();
    const double begin = now();
    work();
    best = std::min(best, now() - begin);
  }
  return best;
}

std::vector<CopyRate> measure_copy(Rank& rank, std::byte* from, std::byte* to, int64_t num_threads) {
  std::vector<CopyRate> rates;
  for (const int64_t bytes : kWorkingSets) {
    const auto half = static_cast<size_t>(bytes / 2);
    const auto work = [&] {
      parallel_for(num_threads, [&](int64_t thread) {
        const size_t at = static_cast<size_t>(thread) * half;
        for (int64_t moved = 0; moved < kMostBytes; moved += bytes) std::memcpy(to + at, from + at, half);
      });
    };
    rates.push_back({bytes, static_cast<double>(num_threads * kMostBytes) / best_time(rank, 9, work)});
  }
  return rates;
}

/// 256 rows a thread: about a millisecond, short enough that a rank has its cores to itself for some repeat even where ranks share
/// them.
double measure_matmul(Rank& rank, std::byte* memory, int64_t num_threads) {
  constexpr int64_t N = 512, K = 512;
  const int64_t M = 256 * num_threads;
  Program g("bench matmul", rank.device->kind());
  const Slot slot = g.slot("tensors");
  const Handle a = g.external(slot, 0, "a", DType::f32, {M, K}),
               b = g.external(slot, 4 * M * K, "b", DType::f32, {N, K}),
               y = g.external(slot, 4 * (M + N) * K, "y", DType::f32, {M, N});
  ops::matmul(g, Stream::compute, {.a = a, .b = b, .c = y, .trans_b = true});
  const Plan plan(std::move(g));
  float* values = reinterpret_cast<float*>(memory);
  for (int64_t i = 0; i < (M + N) * K; ++i) values[i] = random_normal(1, 1, static_cast<uint64_t>(i));
  const auto work = [&] {
    rank.device->replay(plan, {nullptr, memory});
    rank.device->synchronize();
  };
  work();
  return 2.0 * static_cast<double>(M * N * K) / best_time(rank, 60, work);
}

Ceilings measure(Rank& rank) {
  Ceilings c;
  c.num_threads = num_threads();
  Arena& arena = rank.device->arena();
  const int64_t bytes = c.num_threads * kMostBytes / 2;
  std::byte *from = arena.allocate(Purpose::buffers, "bench from", bytes),
            *to = arena.allocate(Purpose::buffers, "bench to", bytes);
  std::memset(from, 1, static_cast<size_t>(bytes));
  std::memset(to, 1, static_cast<size_t>(bytes));
  c.copy = measure_copy(rank, from, to, c.num_threads);
  c.matmul_operations_per_s = measure_matmul(rank, to, c.num_threads);
  arena.release(Purpose::buffers);
  return c;
}

}  // namespace

double Ceilings::copy_rate(double bytes) const {
  const double share = bytes / static_cast<double>(num_threads);
  double rate = 0;
  for (size_t i = copy.size(); i-- > 0;) {
    rate = std::max(rate, copy[i].bytes_per_s);
    if (static_cast<double>(copy[i].bytes) <= share) break;
  }
  return rate;
}

Ceilings measure_ceilings(const Config& config) {
  require<ConfigError>(config.run.device == DeviceKind::cpu,
                       "the ceilings are measured on CPU ranks only: set run.device to cpu");
  Ceilings ceilings;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    const Ceilings mine = measure(rank);
    if (rank.rank == 0) ceilings = mine;
  });
  return ceilings;
}

const ProductRate* Ceilings::find(const Cost& c) const {
  const auto at = std::find_if(products.begin(), products.end(), [&](const ProductRate& p) {
    return p.work == c.work && p.m == c.m && p.n == c.n && p.k == c.k && p.adds == c.adds;
  });
  return at == products.end() ? nullptr : &*at;
}

double floor_seconds(const Cost& cost, const Ceilings& c) {
  const double by_bytes = cost.bytes > 0 ? cost.bytes / c.copy_rate(cost.bytes) : 0;
  if (!cost.is_product()) return by_bytes;
  const ProductRate* product = c.find(cost);
  return std::max(by_bytes,
                  cost.operations / (product ? product->operations_per_s : c.matmul_operations_per_s));
}

}  // namespace moesaic
