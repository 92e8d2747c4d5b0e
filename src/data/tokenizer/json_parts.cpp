#include "data/tokenizer/json_parts.h"

#include <memory>

#include "base/error.h"
#include "base/json.h"

namespace moesaic::json_parts {

using nlohmann::json;

std::string type_of(const json& component, const std::string& where) {
  return string_member(component, "type", where);
}

bool flag(const json& component, const char* name, bool otherwise, const std::string& where) {
  const auto entry = component.find(name);
  if (entry == component.end() || entry->is_null()) return otherwise;
  require<IoError>(entry->is_boolean(), "{}: \"{}\" must be true or false", where, name);
  return entry->get<bool>();
}

std::string text(const json& component, const char* name, const std::string& otherwise,
                 const std::string& where) {
  const auto entry = component.find(name);
  if (entry == component.end() || entry->is_null()) return otherwise;
  require<IoError>(entry->is_string(), "{}: \"{}\" must be a string", where, name);
  return entry->get<std::string>();
}

Finder pattern(const json& component, const std::string& where) {
  const json& value = member(component, "pattern", where);
  if (value.is_object() && value.contains("Regex")) {
    const auto regex = std::make_shared<Regex>(string_member(value, "Regex", where), where);
    return [regex](std::string_view text, TextRange range, std::vector<TextRange>& found) {
      regex->find_all(text, range, found);
    };
  }
  const std::string needle = string_member(value, "String", where);
  require<IoError>(!needle.empty(), "{}: an empty pattern", where);
  return [needle](std::string_view text, TextRange range, std::vector<TextRange>& found) {
    const std::string_view part = text.substr(0, range.end);
    for (size_t at = part.find(needle, range.begin); at != std::string_view::npos;
         at = part.find(needle, at + needle.size()))
      found.push_back({at, at + needle.size()});
  };
}

const json& members(const json& component, const char* name, const std::string& where) {
  return array_member(component, name, where);
}

void refuse(const std::string& kind, const std::string& type, const std::string& where) {
  fail<ConfigError>("{}: the {} \"{}\" is not supported; docs/formats/tokenizer.md lists those that are",
                    where, kind, type);
}

}  // namespace moesaic::json_parts
