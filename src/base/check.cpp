#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace moesaic {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  fmt::print(stderr, "moesaic: a bug in Moesaic: {}:{}: {} is false{}{}\n", file, line, condition,
             message.empty() ? "" : ": ", message);
  std::fflush(stderr);
  std::abort();
}

int64_t div_exact(int64_t a, int64_t b) {
  MOESAIC_CHECK(b != 0 && a % b == 0, "{} / {}", a, b);
  return a / b;
}

}  // namespace moesaic
