#pragma once
// The first values of a parameter, made on the host.
#include "base/rng.h"
#include "tensor/parameter_table.h"

namespace moesaic::test {

/// Of `count` elements of a row from element `begin` on.
inline void initial_values(const ParameterRow& row, uint64_t seed, int64_t begin, int64_t count,
                           float* values) {
  const uint64_t stream = stream_of(row.name);
  for (int64_t i = 0; i < count; ++i)
    values[i] = row.init == Init::ones ? 1.0f
                                       : static_cast<float>(row.std) *
                                             random_normal(seed, stream, static_cast<uint64_t>(begin + i));
}

}  // namespace moesaic::test
