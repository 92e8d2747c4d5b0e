#include "comm/control.h"

#include <algorithm>

namespace moesaic {

bool Control::any(bool mine) {
  const auto all = all_gather(mine ? "1" : "0");
  return std::find(all.begin(), all.end(), "1") != all.end();
}

int64_t Control::sum(int64_t mine) {
  int64_t total = 0;
  for (const std::string& part : all_gather(std::to_string(mine))) total += std::stoll(part);
  return total;
}

bool Control::same(const std::string& mine) {
  const auto all = all_gather(mine);
  return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == mine; });
}

}  // namespace moesaic
