#include <bit>

#include "base/rng.h"
#include "ops/cpu_op.h"
#include "ops/initialize/initialize_bodies.h"

namespace moesaic::ops {

void initialize_cpu(const OpContext& c, const Initialize& args) {
  constexpr int64_t kBlock = 1024;
  const int64_t count = c.shape(args.y).numel();
  uint16_t* remainder = out_or_null<uint16_t>(c, args.remainder);
  with_float(c.dtype(args.y), [&](auto zero) {
    using T = decltype(zero);
    T* y = c.out<T>(args.y);
    parallel_for(ceil_div(count, kBlock), [&](int64_t block) {
      for (int64_t i = block * kBlock; i < std::min(count, (block + 1) * kBlock); ++i) {
        float value = args.mean;
        if (args.std != 0)
          value += args.std * random_normal(args.seed, args.stream, static_cast<uint64_t>(args.first + i));
        y[i] = static_cast<T>(value);
        if constexpr (std::is_same_v<T, bf16>)
          if (remainder) {
            const auto bits = std::bit_cast<uint32_t>(value);
            y[i].bits = static_cast<uint16_t>((bits + 0x8000u) >> 16);
            remainder[i] = static_cast<uint16_t>(bits);
          }
      }
    });
  });
}

}  // namespace moesaic::ops
