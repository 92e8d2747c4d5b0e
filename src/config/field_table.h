#pragma once
// The one table of a run's fields: each is declared once (field_table.cpp) with its TOML key, help text and
// allowed range, and bound to its place in a Config. Parsing, printing, --set, --help, the check of single
// values and the search for the nearest known key all walk this table.
//
//   for (const Field& field : bind_fields(config)) fmt::print("{} = {}\n", field.key, value_text(field));
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace moesaic {

/// An enum field, seen as an index into its names.
struct EnumRef {
  void* object;
  size_t (*get)(const void* object);
  void (*set)(void* object, size_t index);
  std::span<const std::string_view> names;
};

using FieldValue = std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, std::vector<int64_t>*,
                                std::vector<double>*, EnumRef>;

/// The numbers that a field accepts; of a list, each element. Infinity and NaN are never accepted.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;  // min itself is refused
  bool max_open = false;  // max itself is refused
  bool operator==(const Range&) const = default;
};

/// "at least 1", "more than 0 and less than 1"; empty when every number is allowed.
std::string describe(const Range& range);

struct Field {
  std::string_view key;   // "layout.dispatch"
  std::string_view help;  // what it is, with its unit
  Range range;            // of numbers
  FieldValue value;       // points into the bound Config
};

/// The key that loads a shipped model shape; no field of Config, since a resolved run states the whole shape.
inline constexpr std::string_view kPresetKey = "model.preset";

/// Every field, bound to `config`, grouped by section. The fields live as long as `config` stays where it is.
std::vector<Field> bind_fields(Config& config);

/// The field's value as TOML text that parses back to the same value.
std::string value_text(const Field& field);
/// What the field accepts, in words: "an integer", "one of auto, a2a, ag_rs".
std::string type_text(const Field& field);
/// Why the field's present number is refused ("must be at least 1, but is 0"), or nothing.
std::optional<std::string> range_problem(const Field& field);

/// `text` as a TOML basic string, quoted and escaped.
std::string toml_string(std::string_view text);

}  // namespace moesaic
