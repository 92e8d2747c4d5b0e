#pragma once
// Files of a run as a page reads them: whole, up to a bound.
#include <string>

#include "base/file.h"

namespace moesaic {

/// IoError when it is missing or holds more than 4 GiB. A file that grows or is cut meanwhile gives what was there.
inline std::string read_run_file(const std::string& path) {
  return read_file(path, int64_t{4} << 30);
}

}  // namespace moesaic
