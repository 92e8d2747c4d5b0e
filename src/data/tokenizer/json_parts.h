#pragma once
// What the readers of a tokenizer.json's components share.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/regex.h"

namespace moesaic::json_parts {

/// "type" of a component.
std::string type_of(const nlohmann::json& component, const std::string& where);
/// A member that may be absent or null. IoError if it has another type.
bool flag(const nlohmann::json& component, const char* name, bool otherwise, const std::string& where);
std::string text(const nlohmann::json& component, const char* name, const std::string& otherwise,
                 const std::string& where);

/// A "pattern", {"String": ...} or {"Regex": ...}: appends what it matches in the range.
using Finder = std::function<void(std::string_view, TextRange, std::vector<TextRange>&)>;
Finder pattern(const nlohmann::json& component, const std::string& where);

/// For a component whose members are components: the array of that name.
const nlohmann::json& members(const nlohmann::json& component, const char* name, const std::string& where);

[[noreturn]] void refuse(const std::string& kind, const std::string& type, const std::string& where);

}  // namespace moesaic::json_parts
