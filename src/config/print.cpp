#include "config/print.h"

#include <fmt/format.h>

#include "config/field_table.h"

namespace moesaic {

std::string print_config(const Config& config) {
  Config bound = config;
  std::string text;
  std::string_view section;
  for (const Field& field : bind_fields(bound)) {
    const size_t dot = field.key.rfind('.');
    if (field.key.substr(0, dot) != section) {
      section = field.key.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", field.key.substr(dot + 1), value_text(field));
  }
  return text;
}

std::string config_help() {
  Config defaults;
  std::string text =
      fmt::format("{}: a shipped model shape, loaded before the other model.* keys\n", kPresetKey);
  for (const Field& field : bind_fields(defaults)) {
    const std::string range = describe(field.range);
    text += fmt::format("{} = {}: {} ({}{}{})\n", field.key, value_text(field), field.help, type_text(field),
                        range.empty() ? "" : ", ", range);
  }
  return text;
}

}  // namespace moesaic
