#pragma once
// The rules that a run's values obey by themselves or within their section; those that need the mesh are in
// mesh/rules.h.
#include "config/config.h"

namespace moesaic {

/// Throws ConfigError at the first broken rule, naming the keys and their values. Reads values only: takes no
/// memory, opens nothing, asks no device.
void validate_values(const Config& config);

}  // namespace moesaic
