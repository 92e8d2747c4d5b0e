#pragma once
// JSON from outside, read strictly: what the grammar allows but no honest file contains is refused, and every
// wrong type or missing member is an IoError that names the file and the member.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// Parses text, whose size the caller has bounded. Refuses bad grammar, invalid UTF-8, more than 64 levels,
/// and a member that occurs twice in one object. `where` begins the message, normally the path.
nlohmann::json parse_json(std::string_view text, const std::string& where);
/// One line. IoError if a string is not UTF-8.
std::string to_text(const nlohmann::json& value, const std::string& where);

/// Members of an object, with their type checked. Integers are in [0, 2^63).
const nlohmann::json& member(const nlohmann::json& object, const char* name, const std::string& where);
int64_t int_member(const nlohmann::json& object, const char* name, const std::string& where);
std::string string_member(const nlohmann::json& object, const char* name, const std::string& where);
const nlohmann::json& array_member(const nlohmann::json& object, const char* name, const std::string& where);
std::vector<int64_t> ints_member(const nlohmann::json& object, const char* name, const std::string& where);

}  // namespace moesaic
