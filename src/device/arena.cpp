#include "device/arena.h"

#include <algorithm>

#include "base/check.h"

namespace moesaic {

std::string name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::parameters:
      return "parameters";
    case Purpose::gradients:
      return "gradients";
    case Purpose::optimizer:
      return "optimizer state";
    case Purpose::activations:
      return "kept activations";
    case Purpose::workspace:
      return "workspace";
    case Purpose::batch:
      return "batch";
    case Purpose::buffers:
      return "buffers";
  }
  return "?";
}

Arena::~Arena() {
  for (const Allocation& a : allocations_) source_.give(a.memory, a.bytes);
}

std::byte* Arena::allocate(Purpose purpose, std::string name, int64_t bytes) {
  MOESAIC_CHECK(bytes >= 0, "{}: {} bytes", name, bytes);
  bytes = std::max<int64_t>(round_up(bytes, 256), 256);
  std::byte* memory = source_.take(bytes);
  allocations_.push_back({purpose, std::move(name), bytes, memory});
  bytes_ += bytes;
  high_water_ = std::max(high_water_, bytes_);
  return memory;
}

void Arena::release(Purpose purpose) {
  std::erase_if(allocations_, [&](const Allocation& a) {
    if (a.purpose != purpose) return false;
    source_.give(a.memory, a.bytes);
    bytes_ -= a.bytes;
    return true;
  });
}

int64_t Arena::bytes(Purpose purpose) const {
  int64_t sum = 0;
  for (const Allocation& a : allocations_)
    if (a.purpose == purpose) sum += a.bytes;
  return sum;
}

}  // namespace moesaic
