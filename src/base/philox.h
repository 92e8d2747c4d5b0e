#pragma once
// The generator behind rng.h, in a form that kernels can use too. Philox 4x32-10 (Salmon et al., SC'11).
#include <cstdint>

namespace moesaic {

struct PhiloxBlock {
  uint32_t words[4];
};

constexpr PhiloxBlock philox(uint64_t key, uint64_t high, uint64_t low) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                 static_cast<uint32_t>(high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.words[0], p1 = uint64_t{0xCD9E8D57u} * c.words[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.words[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.words[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace moesaic
