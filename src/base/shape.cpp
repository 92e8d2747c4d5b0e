#include "base/shape.h"

#include <fmt/format.h>

namespace moesaic {

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < num_dims_; ++i) text += fmt::format("{}{}", i ? ", " : "", (*this)[i]);
  return text + "]";
}

}  // namespace moesaic
