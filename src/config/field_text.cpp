// What a field says about itself: its value, type and range as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "config/field_table.h"

namespace moesaic {
namespace {

template <class... Fs>
struct Overloads : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloads(Fs...) -> Overloads<Fs...>;

// The shortest text that reads back as the same double, with a mark that makes it a float in TOML.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

bool inside(const Range& range, double value) {
  return std::isfinite(value) && (range.min_open ? value > range.min : value >= range.min) &&
         (range.max_open ? value < range.max : value <= range.max);
}

}  // namespace

std::string describe(const Range& range) {
  std::string text;
  if (std::isfinite(range.min))
    text = fmt::format("{} {}", range.min_open ? "more than" : "at least", range.min);
  if (std::isfinite(range.max)) {
    if (!text.empty()) text += " and ";
    text += fmt::format("{} {}", range.max_open ? "less than" : "at most", range.max);
  }
  return text;
}

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (code < 0x20 || code == 0x7f) {
      quoted += fmt::format("\\u{:04x}", code);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string value_text(const Field& field) {
  return std::visit(
      Overloads{
          [](const bool* value) { return std::string(*value ? "true" : "false"); },
          [](const int64_t* value) { return fmt::format("{}", *value); },
          [](const uint64_t* value) { return fmt::format("{}", *value); },
          [](const double* value) { return float_text(*value); },
          [](const std::string* value) { return toml_string(*value); },
          [](const std::vector<int64_t>* value) { return fmt::format("[{}]", fmt::join(*value, ", ")); },
          [](const std::vector<double>* value) {
            std::string text;
            for (const double element : *value) text += (text.empty() ? "" : ", ") + float_text(element);
            return "[" + text + "]";
          },
          [](const EnumRef& value) { return toml_string(value.names[value.get(value.object)]); }},
      field.value);
}

std::string type_text(const Field& field) {
  return std::visit(
      Overloads{[](const bool*) { return std::string("true or false"); },
                [](const int64_t*) { return std::string("an integer"); },
                [](const uint64_t*) { return std::string("an integer of at least 0"); },
                [](const double*) { return std::string("a number"); },
                [](const std::string*) { return std::string("a string"); },
                [](const std::vector<int64_t>*) { return std::string("an array of integers"); },
                [](const std::vector<double>*) { return std::string("an array of numbers"); },
                [](const EnumRef& value) { return fmt::format("one of {}", fmt::join(value.names, ", ")); }},
      field.value);
}

std::optional<std::string> range_problem(const Field& field) {
  const auto problem = [&](auto value) -> std::optional<std::string> {
    if (inside(field.range, static_cast<double>(value))) return std::nullopt;
    if (!std::isfinite(static_cast<double>(value))) return fmt::format("must be finite, but is {}", value);
    return fmt::format("must be {}, but is {}", describe(field.range), value);
  };
  const auto first_problem = [&](const auto& values) -> std::optional<std::string> {
    for (const auto value : values)
      if (auto found = problem(value)) return "each element " + *found;
    return std::nullopt;
  };
  return std::visit(Overloads{[&](int64_t* value) { return problem(*value); },
                              [&](double* value) { return problem(*value); },
                              [&](uint64_t* value) -> std::optional<std::string> {
                                // TOML integers are signed, so a larger one could not be read back.
                                if (*value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
                                  return problem(*value);
                                return fmt::format("must be at most {}, but is {}",
                                                   std::numeric_limits<int64_t>::max(), *value);
                              },
                              [&](std::vector<int64_t>* values) { return first_problem(*values); },
                              [&](std::vector<double>* values) { return first_problem(*values); },
                              [](bool*) -> std::optional<std::string> { return std::nullopt; },
                              [](std::string*) -> std::optional<std::string> { return std::nullopt; },
                              [](const EnumRef&) -> std::optional<std::string> { return std::nullopt; }},
                    field.value);
}

}  // namespace moesaic
