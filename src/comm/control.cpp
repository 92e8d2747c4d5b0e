#include "comm/control.h"

#include <fmt/core.h>

#include <algorithm>

namespace moesaic {

std::string Control::place(const std::string& file, int line) {
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), line);
}

bool Control::any(bool mine, const char* file, int line) {
  const auto all = all_gather(mine ? "1" : "0", file, line);
  return std::find(all.begin(), all.end(), "1") != all.end();
}

int64_t Control::sum(int64_t mine, const char* file, int line) {
  int64_t total = 0;
  for (const std::string& part : all_gather(std::to_string(mine), file, line)) total += std::stoll(part);
  return total;
}

bool Control::same(const std::string& mine, const char* file, int line) {
  const auto all = all_gather(mine, file, line);
  return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == mine; });
}

}  // namespace moesaic
