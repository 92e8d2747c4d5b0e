#pragma once
// One op alone on each rank, between tensors of its own: what ceilings are measured with.
#include <string>

#include "launch/launch.h"

namespace moesaic {

class Alone {
 public:
  Alone(Rank& rank, std::string name);

  /// What is measured is recorded here; on one stream, or a repeat may overlap the next.
  Program& program() { return program_; }
  /// A tensor in device memory, filled with random BF16 numbers; read as FP32 they are small random numbers too.
  Handle tensor(DType type, Shape shape);
  /// Runs what was recorded a few times, all ranks at once, and gives the median seconds of a repeat on this rank: the sum of its
  /// nodes' times. Once only.
  double seconds();

 private:
  void fill(std::byte* memory);

  Rank& rank_;
  Program program_;
  Slot slot_;
  int64_t bytes_ = 0;
};

}  // namespace moesaic
