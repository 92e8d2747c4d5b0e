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
  double operations = 0;  // multiply and add counted apart
  double bytes = 0;       // read and written once each in this rank's memory
  double sent = 0;        // bytes that leave this rank
  /// Of a product: [m, k] by [k, n], of one group where the groups differ in k; of attention: sequence, heads, head size.
  /// 0 = not given.
  int64_t m = 0, n = 0, k = 0;
  bool adds = false;  // a product that adds to FP32, or attention's backward

  bool is_product() const {
    return work == Work::matmul || work == Work::grouped_matmul || work == Work::attention;
  }
};

}  // namespace moesaic
