#pragma once
// Files of one JSON object a line (metrics.jsonl, events.jsonl), readable while the run goes on. Format:
// docs/formats/run_folder.md. One writer at a time (rank 0); not thread-safe.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "report/append_file.h"

namespace moesaic {

class JsonLinesFile {
 public:
  /// Opens `path` for appending and creates it where it is absent; its folder must exist. An unfinished last
  /// line (of a process that was killed while writing) is cut off first. Throws IoError.
  explicit JsonLinesFile(const std::string& path);

  /// Appends one line, visible to others at once. `object` holds no newline. Throws IoError.
  void write(std::string_view object);

 private:
  AppendFile file_;
};

/// Prepares a file of step lines for a run that goes on at `step`: removes the first line whose step is
/// `step` or later, and all after it. Every line begins with {"step":N and steps never fall (to_json_line and
/// a single run see to that); a line that does not is refused by its number with IoError, and nothing is
/// removed. An absent file is left absent.
void cut_from_step(const std::string& path, int64_t step);

/// The step of the last whole line of such a file; none when the file is absent, or holds no such line.
std::optional<int64_t> last_step(const std::string& path);

}  // namespace moesaic
