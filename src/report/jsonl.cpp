#include "report/jsonl.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/line_reader.h"

namespace moesaic {
namespace {

// Replaces the file by its first `size` bytes; nothing to do when that is all of it.
void keep_prefix(const std::string& path, int64_t size) {
  const InputFile file(path);
  if (size == file.size()) return;
  AtomicFile shorter(path);
  std::vector<std::byte> block(size_t{1} << 20);
  for (int64_t at = 0; at < size;) {
    const auto part =
        std::span(block).first(static_cast<size_t>(std::min(size - at, static_cast<int64_t>(block.size()))));
    file.read(at, part, "the part to keep");
    shorter.write(part);
    at += static_cast<int64_t>(part.size());
  }
  shorter.commit();
}

const std::string& without_unfinished_line(const std::string& path) {
  if (path_exists(path)) {
    LineReader lines(path);
    int64_t whole = 0;
    while (lines.next())
      if (lines.whole()) whole = lines.position();
    keep_prefix(path, whole);
  }
  return path;
}

std::optional<int64_t> step_of(std::string_view line) {
  constexpr std::string_view kStart = R"({"step":)";
  if (!line.starts_with(kStart)) return std::nullopt;
  line.remove_prefix(kStart.size());
  int64_t step = 0;
  const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool ended = rest != line.data() + line.size() && (*rest == ',' || *rest == '}');
  return error == std::errc() && ended ? std::optional(step) : std::nullopt;
}

}  // namespace

JsonLinesFile::JsonLinesFile(const std::string& path) : file_(without_unfinished_line(path)) {}

void JsonLinesFile::write(std::string_view object) {
  MOESAIC_CHECK(object.find('\n') == std::string_view::npos, "a JSON line holds a newline: {}", object);
  std::string line(object);
  line += '\n';
  file_.write(line);
}

void cut_from_step(const std::string& path, int64_t step) {
  if (!path_exists(path)) return;
  LineReader lines(path);
  int64_t number = 1, last = 0, kept = 0;
  for (; const auto line = lines.next(); ++number, kept = lines.position()) {
    if (!lines.whole()) break;
    const std::optional<int64_t> found = step_of(*line);
    require<IoError>(
        found && *found >= last,
        "line {} of {} should begin with {{\"step\":N, N at least {}: the file is damaged or not a run's; "
        "move it away to go on",
        number, path, last);
    if (*found >= step) break;
    last = *found;
  }
  keep_prefix(path, kept);
}

std::optional<int64_t> last_step(const std::string& path) {
  if (!path_exists(path)) return std::nullopt;
  LineReader lines(path);
  std::optional<int64_t> last;
  while (const auto line = lines.next())
    if (lines.whole()) last = step_of(*line);
  return last;
}

}  // namespace moesaic
