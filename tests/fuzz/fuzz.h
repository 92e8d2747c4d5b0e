#pragma once
// What the targets share. A finding is a crash, a sanitizer's report, a failed MOESAIC_CHECK, or any exception but those that
// input from outside may cause.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moesaic::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `parse`; false when it refused its input. `what` it says must not be empty.
template <class F>
bool accepts(F&& parse) {
  try {
    parse();
    return true;
  } catch (const Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
    return false;
  }
}

}  // namespace moesaic::fuzz
