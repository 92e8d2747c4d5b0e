#pragma once
// The model shapes that ship with Moesaic, by name. Published ones follow their authors' released
// configurations, router included; any field can be overridden after loading one.
#include <string_view>
#include <vector>

#include "config/config.h"

namespace moesaic {

/// Names in the order of reports.
std::vector<std::string_view> model_shape_names();

/// The shape of that name. Throws ConfigError naming the nearest known one.
ModelConfig model_shape(std::string_view name);

}  // namespace moesaic
