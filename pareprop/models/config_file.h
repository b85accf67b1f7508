#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pareprop::models {

// A JSON object that another program wrote, such as config.json: values by key, none where the key
// is not there or null. Values of other types, and numbers that nobody means, throw
// std::invalid_argument that names file and key.
class ConfigFile {
 public:
  // Throws what io::read_text_file() and io::parse_json() throw, and for what is no object.
  explicit ConfigFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  bool has(const std::string& key) const;

  std::optional<std::int64_t> whole(const std::string& key) const;
  // The side of a square: a number, or two that are equal.
  std::optional<std::int64_t> side(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<double> probability(const std::string& key) const;  // less than 1
  std::optional<bool> flag(const std::string& key) const;
  std::optional<std::string> word(const std::string& key) const;
  std::optional<std::vector<int>> wholes(const std::string& key) const;
  std::optional<std::vector<float>> numbers(const std::string& key) const;  // or one
  std::optional<std::vector<std::string>> words(const std::string& key) const;
  // {"0": "cat", "1": "dog"}: all numbers from 0 on.
  std::optional<std::vector<std::string>> names_by_number(const std::string& key) const;
  // An object inside; an empty one where there is none.
  ConfigFile part(const std::string& key) const;
  std::vector<std::string> keys() const;

  [[noreturn]] void fail(const std::string& key, const std::string& why) const;

 private:
  ConfigFile(std::string path, const nlohmann::json& object);
  const nlohmann::json* find(const std::string& key) const;

  std::string path_;
  std::shared_ptr<const nlohmann::json> object_;
};

}  // namespace pareprop::models
