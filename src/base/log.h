#pragma once
// One line per event on standard error, whole lines only, tagged with the calling thread's rank once there is more than
// one. The tag is the thread's own (set by launch/): it is the only per-thread state in the program.
#include <fmt/core.h>

#include <string>

namespace moesaic {

/// Sets the tag of this thread's lines, for example "rank 3"; empty for none.
void set_log_tag(std::string tag);
/// Writes "moesaic[rank 3]: message\n" in one piece.
void log_line(const std::string& message);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line("warning: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moesaic
