#include "base/log.h"

#include <cstdio>

namespace moesaic {
namespace {
thread_local std::string t_tag;
}

void set_log_tag(std::string tag) {
  t_tag = std::move(tag);
}

void log_line(const std::string& message) {
  const std::string line = t_tag.empty() ? fmt::format("moesaic: {}\n", message)
                                         : fmt::format("moesaic[{}]: {}\n", t_tag, message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace moesaic
