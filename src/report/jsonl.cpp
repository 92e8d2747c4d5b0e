#include "report/jsonl.h"

#include <charconv>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"

namespace moesaic {
namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Replaces the file by its first `size` bytes; nothing to do when that is all of it.
void keep_prefix(const MappedFile& file, size_t size) {
  if (size == file.bytes().size()) return;
  AtomicFile shorter(file.path());
  shorter.write(file.bytes().first(size));
  shorter.commit();
}

const std::string& without_unfinished_line(const std::string& path) {
  if (path_exists(path)) {
    const MappedFile file(path);
    keep_prefix(file, text_of(file).rfind('\n') + 1);  // npos + 1 is 0: no whole line at all
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
  const MappedFile file(path);
  const std::string_view text = text_of(file);
  size_t kept = 0;
  int64_t number = 1, last = 0;
  for (size_t end = 0; (end = text.find('\n', kept)) != std::string_view::npos; ++number, kept = end + 1) {
    const std::optional<int64_t> found = step_of(text.substr(kept, end - kept));
    require<IoError>(
        found && *found >= last,
        "line {} of {} should begin with {{\"step\":N, N at least {}: the file is damaged or not a run's; "
        "move it away to go on",
        number, path, last);
    if (*found >= step) break;
    last = *found;
  }
  keep_prefix(file, kept);
}

std::optional<int64_t> last_step(const std::string& path) {
  if (!path_exists(path)) return std::nullopt;
  const MappedFile file(path);
  std::string_view text = text_of(file);
  text = text.substr(0, text.rfind('\n') + 1);  // npos + 1 is 0
  if (text.empty()) return std::nullopt;
  text.remove_suffix(1);
  return step_of(text.substr(text.rfind('\n') + 1));
}

}  // namespace moesaic
