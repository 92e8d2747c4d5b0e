#pragma once
// What an op must do at least, on any machine: the floor that its time is compared with and what the sim
// device charges.
#include <cstdint>

namespace moesaic {

enum class Work : uint8_t {
  matmul,          // dense matrix products
  grouped_matmul,  // one product per expert
  attention,       // products of attention
  memory,          // bounded by bytes
  comm,            // bytes between ranks
};

struct Cost {
  Work work = Work::memory;
  /// By the formulas of the op's contract, a term that occurs twice computed once: each +, -, *, /, comparison, maximum,
  /// square root, exponential, logarithm, ... is one; a sum of n numbers n. Left out: conversions, addresses, and what a row
  /// or a head needs once, whatever its width (a mean, a norm). Of products the multiplications and additions alone, whatever
  /// else the op does.
  double operations = 0;
  double bytes = 0;  // of this rank's memory: what is read once, what is written once, what is updated twice
  double sent = 0;   // bytes that leave this rank
  /// Of a product: [m, k] by [k, n], of one group where the groups differ in k; of attention: sequence, heads, head size.
  /// 0 = not given.
  int64_t m = 0, n = 0, k = 0;
  bool adds = false;  // a product that adds to FP32, or attention's backward

  bool is_product() const {
    return work == Work::matmul || work == Work::grouped_matmul || work == Work::attention;
  }
};

}  // namespace moesaic
