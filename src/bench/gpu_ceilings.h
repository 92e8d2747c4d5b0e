#pragma once
// The ceilings of a GPU, measured by ops alone on it, with random data: what each product of a step reaches as one dense product of
// its shape, what attention reaches alone, what a copy reaches.
#include <vector>

#include "bench/ceilings.h"

namespace moesaic {

/// `costs`: the products of a step whose rates are wanted; the same shape may come more than once. Rank 0's numbers, while all
/// ranks do the same.
Ceilings measure_gpu_ceilings(const Config& config, const std::vector<Cost>& costs);

}  // namespace moesaic
