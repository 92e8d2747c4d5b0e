#pragma once
// From TOML and command-line settings to a Config. The text is untrusted: its size and nesting are bounded,
// unknown keys, wrong types and out-of-range numbers are refused with file, line and what was expected. Only
// single values are checked here; validate.h and mesh/rules.h check how they fit together.
//
// `model.preset` names a shipped shape (shapes.h): it fills every model.* field first, and the other model.*
// keys of the same file or command line then override it, wherever they stand.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace moesaic {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

/// Throws IoError when the file cannot be read or is larger than kMaxConfigBytes, ConfigError when its text
/// is refused.
Config parse_config_file(const std::filesystem::path& path);

/// `origin` names the text in messages ("file.toml"). Throws ConfigError.
Config parse_config_text(std::string_view text, const std::string& origin);

/// Applies one "key=value" (the argument of --set): strings and enums are written bare, the rest as in TOML
/// ("train.trace_steps=[3, 4]"). model.preset replaces every model.* value. Throws ConfigError; `config` is
/// then unchanged.
void apply_setting(Config& config, std::string_view setting);

/// Applies the settings of one command line: model.preset first, then the others in order.
void apply_settings(Config& config, const std::vector<std::string>& settings);

}  // namespace moesaic
