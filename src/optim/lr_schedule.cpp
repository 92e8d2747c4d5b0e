#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moesaic {

double learning_rate(const OptimConfig& optim, int64_t step, int64_t total_steps, double progress) {
  progress = std::clamp(progress, 0.0, 1.0);
  const double warm =
      optim.warmup_steps > 0
          ? std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(optim.warmup_steps))
          : 1.0;
  switch (optim.decay) {
    case DecaySchedule::constant:
      return warm * optim.lr;
    case DecaySchedule::cosine: {
      const double falling =
          optim.min_lr + (optim.lr - optim.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
      return std::min(warm * optim.lr, falling);
    }
    case DecaySchedule::wsd: {
      const double part = optim.decay_steps > 0 && total_steps > 0
                              ? static_cast<double>(optim.decay_steps) / static_cast<double>(total_steps)
                              : 0.2;
      const double left = std::min(1.0, (1 - progress) / std::max(part, 1e-9));
      return std::min(warm * optim.lr, optim.min_lr + (optim.lr - optim.min_lr) * left);
    }
  }
  return optim.lr;
}

}  // namespace moesaic
