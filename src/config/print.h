#pragma once
// A Config as text.
#include <string>

#include "config/config.h"

namespace moesaic {

/// Complete TOML, every field stated, that parse_config_text reads back to the same Config: the resolved
/// configuration of a run. Holds for values that validate_values accepts and strings in UTF-8.
std::string print_config(const Config& config);

/// Every key with its default, what it accepts and what it means, one line each, by section.
std::string config_help();

}  // namespace moesaic
