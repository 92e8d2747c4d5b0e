#pragma once
// A tensor's extents, outermost first, row-major without gaps. At most four dims, 64-bit throughout.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace moesaic {

class Shape {
 public:
  static constexpr int kMaxDims = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    MOESAIC_CHECK(dims.size() <= kMaxDims);
    for (int64_t d : dims) dims_[static_cast<size_t>(num_dims_++)] = d;
  }
  int num_dims() const { return num_dims_; }
  /// Extent of dim i; negative i counts from the end.
  int64_t operator[](int i) const {
    const int at = i < 0 ? i + num_dims_ : i;
    MOESAIC_CHECK(at >= 0 && at < num_dims_);
    return dims_[static_cast<size_t>(at)];
  }
  int64_t numel() const {
    int64_t product = 1;
    for (int i = 0; i < num_dims_; ++i) product *= dims_[static_cast<size_t>(i)];
    return product;
  }
  /// Rows when the last dim is taken as the row: numel / last.
  int64_t rows() const {
    int64_t product = 1;
    for (int i = 0; i + 1 < num_dims_; ++i) product *= dims_[static_cast<size_t>(i)];
    return product;
  }
  bool operator==(const Shape&) const = default;
  /// "[8, 128]"
  std::string str() const;

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int num_dims_ = 0;
};

}  // namespace moesaic
