#include "pareprop/models/config_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "pareprop/io/input_file.h"
#include "pareprop/io/json.h"
#include "pareprop/text/escape.h"

namespace pareprop::models {
namespace {

using nlohmann::json;

constexpr std::int64_t kMost = std::int64_t{1} << 31;  // of any whole number in such files

bool is_whole(const json& value) {
  return value.is_number_integer() && value >= -kMost && value <= kMost;
}
bool is_number(const json& value) {
  return value.is_number() && std::isfinite(value.get<double>());
}

}  // namespace

ConfigFile::ConfigFile(const std::filesystem::path& path) : path_(path.string()) {
  json object = io::parse_json(io::read_text_file(path), path_);
  if (!object.is_object()) {
    throw std::invalid_argument(path_ + ": expected a JSON object of keys and values");
  }
  object_ = std::make_shared<const json>(std::move(object));
}

ConfigFile::ConfigFile(std::string path, const json& object)
    : path_(std::move(path)), object_(std::make_shared<const json>(object)) {}

void ConfigFile::fail(const std::string& key, const std::string& why) const {
  throw std::invalid_argument(path_ + ": " + text::printable(key) + ": " + why);
}

const json* ConfigFile::find(const std::string& key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFile::has(const std::string& key) const { return find(key) != nullptr; }

std::optional<std::int64_t> ConfigFile::whole(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_whole(*value)) fail(key, "expected a whole number, got " + value->dump().substr(0, 80));
  return value->get<std::int64_t>();
}

std::optional<std::int64_t> ConfigFile::side(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_array()) return whole(key);
  const auto sides = wholes(key);
  if (sides->empty() || sides->front() != sides->back()) {
    fail(key, "expected one number, or two that are equal: networks here are for squares; got " +
                  value->dump().substr(0, 80));
  }
  return sides->front();
}

std::optional<double> ConfigFile::number(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_number(*value)) fail(key, "expected a number, got " + value->dump().substr(0, 80));
  return value->get<double>();
}

std::optional<double> ConfigFile::probability(const std::string& key) const {
  const auto value = number(key);
  if (value && !(*value >= 0.0 && *value < 1.0)) {
    fail(key, "expected 0 or more and less than 1; nothing was loaded");
  }
  return value;
}

std::optional<bool> ConfigFile::flag(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    fail(key, "expected true or false, got " + value->dump().substr(0, 80));
  }
  return value->get<bool>();
}

std::optional<std::string> ConfigFile::word(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, "expected a text, got " + value->dump().substr(0, 80));
  return value->get<std::string>();
}

std::optional<std::vector<int>> ConfigFile::wholes(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_whole)) {
    fail(key, "expected a list of whole numbers, got " + value->dump().substr(0, 80));
  }
  std::vector<int> all;
  for (const json& each : *value) {
    all.push_back(static_cast<int>(std::clamp<std::int64_t>(each, -kMost, kMost - 1)));
  }
  return all;
}

std::optional<std::vector<float>> ConfigFile::numbers(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (is_number(*value)) return std::vector<float>{value->get<float>()};
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_number)) {
    fail(key, "expected a list of numbers, got " + value->dump().substr(0, 80));
  }
  return value->get<std::vector<float>>();
}

std::optional<std::vector<std::string>> ConfigFile::words(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto is_text = [](const json& each) { return each.is_string(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_text)) {
    fail(key, "expected a list of texts, got " + value->dump().substr(0, 80));
  }
  return value->get<std::vector<std::string>>();
}

std::optional<std::vector<std::string>> ConfigFile::names_by_number(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> names;
  for (std::size_t i = 0; value->is_object() && i < value->size(); ++i) {
    const auto found = value->find(std::to_string(i));
    if (found == value->end() || !found->is_string()) break;
    names.push_back(found->get<std::string>());
  }
  if (!value->is_object() || names.size() != value->size()) {
    fail(key, "expected a name for each number from \"0\" on, got " + value->dump().substr(0, 80));
  }
  return names;
}

ConfigFile ConfigFile::part(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return {path_, json::object()};
  if (!value->is_object()) fail(key, "expected an object, got " + value->dump().substr(0, 80));
  return {path_, *value};
}

std::vector<std::string> ConfigFile::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items()) keys.push_back(key);
  return keys;
}

}  // namespace pareprop::models
