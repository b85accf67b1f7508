#include "pareprop/sweep/sweep_file.h"

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "pareprop/io/input_file.h"
#include "pareprop/io/json.h"
#include "pareprop/text/units.h"

namespace pareprop::sweep {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& expected, const json& got) {
  throw std::invalid_argument("expected " + expected + ", got " +
                              got.dump(-1, ' ', false, json::error_handler_t::replace));
}

void read(const json& value, std::string& into) {
  if (!value.is_string()) refuse("a string", value);
  into = value.get<std::string>();
}

void read(const json& value, bool& into) {
  if (!value.is_boolean()) refuse("true or false", value);
  into = value.get<bool>();
}

void read(const json& value, std::int64_t& into) {
  if (!value.is_number_integer()) refuse("a whole number", value);
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    refuse("a smaller number", value);
  }
  into = value.get<std::int64_t>();
}

void read(const json& value, int& into) {
  std::int64_t wide = 0;
  read(value, wide);
  if (!std::in_range<int>(wide)) refuse("a smaller number", value);
  into = static_cast<int>(wide);
}

void read(const json& value, std::uint64_t& into) {
  if (!value.is_number_unsigned()) refuse("a whole number, 0 or more", value);
  into = value.get<std::uint64_t>();
}

void read(const json& value, double& into) {
  if (!value.is_number()) refuse("a number", value);
  into = value.get<double>();
}

void read(const json& value, Precision& into) {
  std::string text;
  read(value, text);
  into = parse_precision(text);
}

void read(const json& value, Mode& into) {
  std::string text;
  read(value, text);
  into = parse_mode(text);
}

template <typename Value>
void read(const json& value, std::optional<Value>& into) {
  read(value, into.emplace());
}

template <typename Value>
void read(const json& value, std::vector<Value>& into) {
  if (!value.is_array() || value.empty()) refuse("a list", value);
  into.clear();
  for (const json& part : value) {
    Value one{};
    read(part, one);
    into.push_back(std::move(one));
  }
}

void read_depths(const json& value, std::vector<std::vector<int>>& into) {
  if (!value.is_array() || value.empty()) refuse("a list", value);
  into.clear();
  for (const json& part : value)
    read(part.is_array() ? part : json::array({part}), into.emplace_back());
}

void read_budgets(const json& value, std::vector<std::int64_t>& into) {
  if (!value.is_array() || value.empty()) refuse("a list", value);
  into.clear();
  for (const json& part : value) {
    if (part.is_string()) {
      into.push_back(text::parse_byte_size(part.get<std::string>()));
    } else {
      read(part, into.emplace_back());
    }
  }
}

// What each key of an object does.
using Keys = std::vector<std::pair<std::string, std::function<void(const json&)>>>;

void read_object(const json& object, const Keys& keys, const std::string& where) {
  if (!object.is_object()) {
    throw std::invalid_argument(where + ": expected an object {...}, got " +
                                std::string(object.type_name()));
  }
  for (const auto& [key, value] : object.items()) {
    const auto known =
        std::find_if(keys.begin(), keys.end(), [&](const auto& one) { return one.first == key; });
    if (known == keys.end()) {
      std::string names;
      for (const auto& one : keys) names += (names.empty() ? "" : ", ") + one.first;
      throw std::invalid_argument(where + ": unknown key '" + key + "', expected one of " + names);
    }
    try {
      known->second(value);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(where + ": " + key + ": " + error.what());
    }
  }
}

template <typename Value>
std::pair<std::string, std::function<void(const json&)>> key(const char* name, Value& into) {
  return {name, [&into](const json& value) { read(value, into); }};
}

Grid grid_of(const json& object, const std::string& where) {
  Grid grid;
  bool exact = false;
  read_object(object,
              {key("models", grid.models),
               {"depths", [&](const json& value) { read_depths(value, grid.depths); }},
               key("image_sizes", grid.image_sizes),
               key("seq_lens", grid.seq_lens),
               key("batches", grid.batches),
               key("precisions", grid.precisions),
               key("threads", grid.threads),
               key("modes", grid.modes),
               {"budgets", [&](const json& value) { read_budgets(value, grid.budgets); }},
               key("plain", grid.change.plain),
               key("exact", exact),
               key("seed", grid.seed),
               key("width", grid.change.width),
               key("classes", grid.change.classes),
               key("vocabulary", grid.change.vocabulary),
               key("dropout", grid.change.dropout),
               key("drop_path", grid.change.drop_path)},
              where);
  grid.arithmetic = exact ? Arithmetic::exact : Arithmetic::floating;
  return grid;
}

}  // namespace

Sweep parse_sweep(std::string_view text, const std::string& source) {
  const json parsed = io::parse_json(text, source);
  Sweep sweep;
  const auto read_rows = [&](const json& rows) {
    if (!rows.is_array() || rows.empty()) refuse("a list of rows", rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      sweep.rows.push_back(grid_of(rows[i], "row " + std::to_string(i + 1)));
    }
  };
  read_object(parsed, {key("rounds", sweep.rounds), key("steps", sweep.steps), {"rows", read_rows}},
              source);
  if (sweep.rows.empty()) throw std::invalid_argument(source + ": expected 'rows', a list of rows");
  return sweep;
}

Sweep read_sweep(const std::string& path) { return parse_sweep(io::read_text_file(path), path); }

}  // namespace pareprop::sweep
