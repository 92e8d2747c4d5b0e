#include "base/json.h"

#include <limits>
#include <set>

#include "base/error.h"

namespace moesaic {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

int64_t as_int(const json& value, const char* name, const std::string& where) {
  require<IoError>(value.is_number_unsigned() &&
                       value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
                   "{}: \"{}\" must be a whole number from 0 to 2^63 - 1", where, name);
  return value.get<int64_t>();
}

}  // namespace

json parse_json(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> seen;  // members of each object that is open
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    require<IoError>(depth <= kMaxDepth, "{}: JSON nested deeper than {} levels", where, kMaxDepth);
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      require<IoError>(seen.back().insert(name).second, "{}: \"{}\" occurs twice in one JSON object", where,
                       name);
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    fail<IoError>("{}: damaged JSON: {}", where, error.what());
  }
}

std::string to_text(const json& value, const std::string& where) {
  try {
    return value.dump();
  } catch (const json::exception& error) {
    fail<IoError>("{}: cannot be written as JSON: {}", where, error.what());
  }
}

const json& member(const json& object, const char* name, const std::string& where) {
  require<IoError>(object.is_object() && object.contains(name), "{}: \"{}\" is missing", where, name);
  return object.find(name).value();
}

int64_t int_member(const json& object, const char* name, const std::string& where) {
  return as_int(member(object, name, where), name, where);
}

std::string string_member(const json& object, const char* name, const std::string& where) {
  const json& value = member(object, name, where);
  require<IoError>(value.is_string(), "{}: \"{}\" must be a string", where, name);
  return value.get<std::string>();
}

const json& array_member(const json& object, const char* name, const std::string& where) {
  const json& value = member(object, name, where);
  require<IoError>(value.is_array(), "{}: \"{}\" must be an array", where, name);
  return value;
}

std::vector<int64_t> ints_member(const json& object, const char* name, const std::string& where) {
  std::vector<int64_t> values;
  for (const json& value : array_member(object, name, where)) values.push_back(as_int(value, name, where));
  return values;
}

}  // namespace moesaic
