#pragma once
// The learning rate as a function of progress.
#include "config/config.h"

namespace moesaic {

/// Linear warm-up over the first warmup_steps steps (the first already has lr / warmup_steps), then
///   constant  lr
///   cosine    half a cosine from lr to min_lr at `progress` 1
///   wsd       lr, then linear to min_lr over the last decay_steps (0: the last fifth); in terms of progress
/// `step` from 0; `progress` in [0, 1]: the part of the run that is over (steps, or seconds when the run is limited in time).
double learning_rate(const OptimConfig& optim, int64_t step, int64_t total_steps, double progress);

}  // namespace moesaic
