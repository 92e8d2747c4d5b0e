#pragma once
// Element types of weights in files: F32, BF16 and F16 in, F32 and BF16 out.
#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace moesaic {

/// `from`, elements of type `type` (f32, bf16 or f16; not necessarily aligned), as type `to` (f32 or bf16) at the end of
/// `out`. To f32 is exact; to bf16 rounds to nearest, ties to even.
void append_as(std::span<const std::byte> from, DType type, DType to, std::vector<std::byte>& out);

}  // namespace moesaic
