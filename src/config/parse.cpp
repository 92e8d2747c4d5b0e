#include "config/parse.h"

#include <toml++/toml.h>
#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "config/field_table.h"
#include "config/nearest.h"
#include "config/shapes.h"

namespace moesaic {
namespace {

// The parser recurses into dotted keys, so their number is bounded before it sees the text. Ours have two
// dots at most; the bound leaves room for paths.
constexpr int64_t kMaxDotsPerLine = 32;

void check_dots(std::string_view text, const std::string& origin) {
  int64_t line = 1;
  int64_t dots = 0;
  bool comment = false;
  bool blank = true;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      dots = 0;
      comment = false;
      blank = true;
      continue;
    }
    if (blank && c == '#') comment = true;
    if (c != ' ' && c != '\t') blank = false;
    if (c == '.' && !comment && ++dots > kMaxDotsPerLine) {
      fail<ConfigError>("{}:{}: expected at most {} dots in a line, found more; shorten the key or path",
                        origin, line, kMaxDotsPerLine);
    }
  }
}

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a float";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

// A value that stands at `where` ("in file.toml:3") and how it enters its field: true when its type fits.
struct Assign {
  const toml::node& node;

  template <class T>
  bool exact(T& to) const {
    const auto value = node.value_exact<T>();
    if (value) to = *value;
    return value.has_value();
  }
  bool operator()(bool* to) const { return exact(*to); }
  bool operator()(int64_t* to) const { return exact(*to); }
  bool operator()(std::string* to) const { return exact(*to); }
  bool operator()(uint64_t* to) const {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < 0) return false;
    *to = static_cast<uint64_t>(*value);
    return true;
  }
  bool operator()(double* to) const {
    const auto whole = node.value_exact<int64_t>();
    if (whole) *to = static_cast<double>(*whole);
    return whole || exact(*to);
  }
  bool operator()(std::vector<int64_t>* to) const {
    const toml::array* array = node.as_array();
    if (!array) return false;
    std::vector<int64_t> values;
    for (const toml::node& element : *array) {
      const auto value = element.value_exact<int64_t>();
      if (!value) return false;
      values.push_back(*value);
    }
    *to = std::move(values);
    return true;
  }
  bool operator()(std::vector<double>* to) const {
    const toml::array* array = node.as_array();
    if (!array) return false;
    std::vector<double> values;
    for (const toml::node& element : *array) {
      const auto value = element.value<double>();  // a whole number may stand for a real one
      if (!value || !element.is_number()) return false;
      values.push_back(*value);
    }
    *to = std::move(values);
    return true;
  }
  bool operator()(const EnumRef& to) const {
    const auto name = node.value_exact<std::string_view>();
    const auto found = name ? std::find(to.names.begin(), to.names.end(), *name) : to.names.end();
    if (found == to.names.end()) return false;
    to.set(to.object, static_cast<size_t>(found - to.names.begin()));
    return true;
  }
};

std::string found_text(const toml::node& node) {
  if (const auto text = node.value_exact<std::string_view>()) return fmt::format("\"{}\"", excerpt(*text));
  if (const auto value = node.value_exact<int64_t>()) return fmt::format("{}", *value);
  return std::string(type_name(node));
}

void assign(const Field& field, const toml::node& node, const std::string& where) {
  if (!std::visit(Assign{node}, field.value)) {
    fail<ConfigError>("{} {}: expected {}, found {}", field.key, where, type_text(field), found_text(node));
  }
  if (const auto problem = range_problem(field)) fail<ConfigError>("{} {} {}", field.key, where, *problem);
}

const Field* find_field(const std::vector<Field>& fields, std::string_view key) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.key == key; });
  return found == fields.end() ? nullptr : &*found;
}

bool is_section(const std::vector<Field>& fields, std::string_view key) {
  return std::any_of(fields.begin(), fields.end(), [&](const Field& field) {
    return field.key.size() > key.size() && field.key.starts_with(key) && field.key[key.size()] == '.';
  });
}

std::string_view last_part(std::string_view key) {
  return key.substr(key.rfind('.') + 1);
}

[[noreturn]] void refuse_unknown(const std::vector<Field>& fields, std::string_view key,
                                 const std::string& where) {
  std::vector<std::string_view> known{kPresetKey};
  std::string_view same_name;  // the right name in the wrong section: train.lr
  for (const Field& field : fields) {
    known.push_back(field.key);
    for (size_t dot = field.key.find('.'); dot != std::string_view::npos;
         dot = field.key.find('.', dot + 1)) {
      known.push_back(field.key.substr(0, dot));
    }
    if (last_part(field.key) == last_part(key)) same_name = field.key;
  }
  const std::string_view meant = same_name.empty() ? nearest(key, known) : same_name;
  const std::string hint = meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
  fail<ConfigError>("unknown key {} {}{}", excerpt(key), where, hint);
}

ModelConfig shape_of(const toml::node& node, const std::string& where) {
  const auto name = node.value_exact<std::string>();
  require<ConfigError>(name.has_value(), "{} {}: expected a string, found {}", kPresetKey, where,
                       found_text(node));
  try {
    return model_shape(*name);
  } catch (const ConfigError& error) {
    fail<ConfigError>("{} {}: {}", kPresetKey, where, error.what());
  }
}

std::string where_of(const toml::node& node, const std::string& origin) {
  return fmt::format("in {}:{}", origin, node.source().begin.line);
}

void assign_table(const std::vector<Field>& fields, const toml::table& table, const std::string& prefix,
                  const std::string& origin) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (key == kPresetKey && prefix == "model.") continue;
    const std::string where = fmt::format("in {}:{}", origin, name.source().begin.line);
    require<ConfigError>(name.str().find('.') == std::string_view::npos,
                         "unknown key \"{}\" {}: expected no dot inside quotes; leave the quotes out",
                         excerpt(name.str()), where);
    if (const Field* field = find_field(fields, key)) {
      assign(*field, node, where_of(node, origin));
    } else if (is_section(fields, key)) {
      require<ConfigError>(node.is_table(), "{} {}: expected a table, found {}", key, where,
                           found_text(node));
      assign_table(fields, *node.as_table(), key + ".", origin);
    } else {
      refuse_unknown(fields, key, where);
    }
  }
}

toml::table parse_toml(std::string_view text, const std::string& origin) {
  check_dots(text, origin);
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}:{}: {}", origin, error.source().begin.line, error.description());
  }
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string_view key_of(std::string_view setting) {
  return trimmed(setting.substr(0, setting.find('=')));
}

// The value of a setting as a one-entry table { value = ... }.
toml::table parse_value(std::string_view value, bool quoted, std::string_view setting) {
  const std::string text = fmt::format("value = {}", quoted ? toml_string(value) : std::string(value));
  try {
    toml::table table = toml::parse(text);
    if (table.size() == 1 && table.contains("value")) return table;
  } catch (const toml::parse_error&) {
  }
  fail<ConfigError>("--set {}: the value is not {}", excerpt(setting),
                    quoted ? "UTF-8 text" : "a TOML value");
}

}  // namespace

Config parse_config_text(std::string_view text, const std::string& origin) {
  require<ConfigError>(text.size() <= kMaxConfigBytes, "{}: expected at most {} bytes, found {}", origin,
                       kMaxConfigBytes, text.size());
  const toml::table table = parse_toml(text, origin);
  Config config;
  if (const toml::node* preset = table["model"]["preset"].node()) {
    config.model = shape_of(*preset, where_of(*preset, origin));
  }
  assign_table(bind_fields(config), table, "", origin);
  return config;
}

Config parse_config_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  require<IoError>(file.is_open(), "{}: cannot be opened; check the path", path.string());
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  require<IoError>(!file.bad() && (file.gcount() > 0 || file.eof()), "{}: cannot be read; is it a file?",
                   path.string());
  require<IoError>(static_cast<size_t>(file.gcount()) <= kMaxConfigBytes,
                   "{}: expected a configuration of at most {} bytes, found a larger file", path.string(),
                   kMaxConfigBytes);
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_config_text(text, path.string());
}

void apply_setting(Config& config, std::string_view setting) {
  const size_t equals = setting.find('=');
  require<ConfigError>(equals != std::string_view::npos, "--set expects key=value, found \"{}\"",
                       excerpt(setting));
  require<ConfigError>(setting.size() <= kMaxConfigBytes, "--set {}: expected at most {} bytes, found {}",
                       excerpt(setting), kMaxConfigBytes, setting.size());
  const std::string_view key = key_of(setting);
  const std::string_view value = trimmed(setting.substr(equals + 1));
  const std::string where = "in --set " + excerpt(setting);

  Config changed = config;
  const std::vector<Field> fields = bind_fields(changed);
  const Field* field = find_field(fields, key);
  if (key == kPresetKey) {
    changed.model = shape_of(*parse_value(value, true, setting).get("value"), where);
  } else if (!field) {
    refuse_unknown(fields, key, where);
  } else {
    const bool quoted =
        std::holds_alternative<std::string*>(field->value) || std::holds_alternative<EnumRef>(field->value);
    if (!quoted) check_dots(value, where);
    assign(*field, *parse_value(value, quoted, setting).get("value"), where);
  }
  config = std::move(changed);
}

void apply_settings(Config& config, const std::vector<std::string>& settings) {
  for (const bool preset : {true, false}) {
    for (const std::string& setting : settings) {
      if ((key_of(setting) == kPresetKey) == preset) apply_setting(config, setting);
    }
  }
}

}  // namespace moesaic
