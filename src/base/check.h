#pragma once
// Checks of our own invariants: a failure is a bug in Moesaic, so it prints where and what and aborts. Input from
// outside never reaches one of these: it is refused with an Error (error.h).
#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace moesaic {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

/// a / b, which must be exact.
int64_t div_exact(int64_t a, int64_t b);
/// The smallest multiple of `unit` that is at least a.
constexpr int64_t round_up(int64_t a, int64_t unit) {
  return (a + unit - 1) / unit * unit;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace moesaic

#define MOESAIC_CHECK(condition, ...)                                                         \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::moesaic::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
