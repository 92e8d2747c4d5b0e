#pragma once
// A config.json of Hugging Face, read with suspicion: every key that is used is remembered, so that what nobody understood
// can be named instead of passed over.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace moesaic {

inline constexpr const char* kHfConfigName = "config.json";

/// All getters throw ConfigError naming file and key for a value of another type. null counts as absent.
class HfConfig {
 public:
  /// IoError if the file is missing, larger than 16 MB, or not one JSON object.
  static HfConfig read(const std::string& path);
  HfConfig(nlohmann::json object, std::string path) : object_(std::move(object)), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  const nlohmann::json& object() const { return object_; }

  bool has(const char* key) const;
  /// Whole numbers from 0 on. Without a fallback the key must be there.
  int64_t whole(const char* key) const;
  int64_t whole(const char* key, int64_t fallback) const;
  /// One number that is called `key` or, by other versions of transformers, `twin`. At least one must be there; both must agree.
  int64_t whole_of_either(const char* key, const char* twin) const;
  double number(const char* key) const;
  double number(const char* key, double fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  /// A list of whole numbers; absent = empty.
  std::vector<int64_t> wholes(const char* key) const;

  /// The base of the rotary frequencies: rope_theta, or rope_parameters.rope_theta as transformers 5 writes it.
  /// ConfigError for any kind of scaled positions.
  double rope_theta(double fallback) const;

  /// Throws ConfigError unless the key is absent or has this value; `why` follows the value found.
  template <class T>
  void must_be(const char* key, const T& expected, const char* why) const {
    if (has(key) && object_.at(key) != nlohmann::json(expected)) refuse(key, why);
    understand(key);
  }
  /// "<path>: <key> = <value>: <why>", as ConfigError.
  [[noreturn]] void refuse(const char* key, const std::string& why) const;

  /// These keys say nothing about the mathematics of the model.
  void understand(const char* key) const { understood_.insert(key); }
  /// "key = value" of all other keys that no getter was asked for.
  std::vector<std::string> not_understood() const;

 private:
  const nlohmann::json& get(const char* key) const;

  nlohmann::json object_;
  std::string path_;
  mutable std::set<std::string> understood_;
};

}  // namespace moesaic
