#pragma once
// Element types, and bfloat16 as a value type for the CPU.
#include <bit>
#include <cstdint>
#include <string_view>

namespace moesaic {

enum class DType : uint8_t { f32, bf16, u16, i32, i64, u8, f16 };  // f16: only read from files of others

/// Bytes of one element.
constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::u8:
      return 1;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
  }
  return 0;
}

/// Lower-case name as in our own files: "f32", "bf16", ...
std::string_view name_of(DType type);

/// bfloat16: the upper half of a float. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// The value of an IEEE 754 half-precision number, exact.
float half_to_float(uint16_t bits);

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct dtype_of<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of<uint8_t> {
  static constexpr DType value = DType::u8;
};

/// Calls f with a value of the C++ type of a floating dtype (f32, bf16): with_float(type, [&](auto zero) {...}).
template <class F>
decltype(auto) with_float(DType type, F&& f) {
  return type == DType::bf16 ? f(bf16()) : f(float());
}

}  // namespace moesaic
