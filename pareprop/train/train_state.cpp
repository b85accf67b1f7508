#include "pareprop/train/train_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "pareprop/io/checksum.h"
#include "pareprop/io/json.h"

namespace pareprop::train {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

json to_json(const TrainState& state) {
  json losses = json::array();
  for (const LossPoint& point : state.losses) losses.push_back({point.step, point.loss});
  return {{"step", state.step},        {"data_position", state.data_position},
          {"seed", state.seed},        {"world", state.world},
          {"parts", state.parts},      {"seconds", state.seconds},
          {"config", state.config},    {"losses", losses},
          {"versions", state.versions}};
}

// JSON has no infinities: they are written as null.
double number(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

TrainState state_of(const json& value) {
  TrainState state{.step = value.at("step").get<std::int64_t>(),
                   .data_position = value.at("data_position").get<std::int64_t>(),
                   .seed = value.at("seed").get<std::uint64_t>(),
                   .world = value.at("world").get<int>(),
                   // Neither is there in the first versions.
                   .parts = value.value("parts", std::int64_t{1}),
                   .seconds = value.value("seconds", 0.0),
                   .config = value.at("config").get<std::string>()};
  for (const json& point : value.at("losses")) {
    state.losses.push_back({point.at(0).get<std::int64_t>(), number(point.at(1))});
  }
  state.versions = value.at("versions").get<std::map<std::string, std::string>>();
  return state;
}

// Objects are sorted by key and numbers written in one way, so what was read gives the text that
// was summed.
std::string checksum_of(const json& whole) {
  io::Checksum sum;
  sum.update(whole.dump());
  return io::hex(sum.value());
}

}  // namespace

std::int64_t since_best(const std::vector<LossPoint>& losses) {
  const auto comparable = [](const LossPoint& point) {
    return std::isnan(point.loss) ? std::numeric_limits<double>::infinity() : point.loss;
  };
  const auto best =
      std::min_element(losses.begin(), losses.end(),
                       [&](const auto& a, const auto& b) { return comparable(a) < comparable(b); });
  return losses.empty() ? 0 : std::distance(best, losses.end()) - 1;
}

std::string format_manifest(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, seal] : manifest.files) {
    files[name] = {{"size", seal.size}, {"xxh64", seal.checksum}};
  }
  json whole = {{"format", kFormat}, {"files", files}, {"state", to_json(manifest.state)}};
  try {
    whole["xxh64"] = checksum_of(whole);
    return whole.dump(1) + "\n";
  } catch (const json::type_error&) {
    throw std::invalid_argument(
        "the state of the run cannot be saved, because its configuration is not UTF-8 text");
  }
}

Manifest parse_manifest(std::string_view text) {
  try {
    json whole = io::parse_json(text, "the file");
    if (!whole.is_object()) throw std::runtime_error("the file is damaged: expected a JSON object");
    const int format = whole.at("format").get<int>();
    if (format != kFormat) {
      throw std::runtime_error("the format is " + std::to_string(format) +
                               ", but this program reads format " + std::to_string(kFormat) +
                               ": another version wrote the file");
    }
    const auto expected = whole.at("xxh64").get<std::string>();
    whole.erase("xxh64");
    if (checksum_of(whole) != expected) {
      throw std::runtime_error(
          "the checksum does not match the content: the file was damaged or edited");
    }
    Manifest manifest{.state = state_of(whole.at("state")), .files = {}};
    for (const auto& [name, seal] : whole.at("files").items()) {
      manifest.files[name] = {.size = seal.at("size").get<std::uint64_t>(),
                              .checksum = seal.at("xxh64").get<std::string>()};
    }
    return manifest;
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(error.what());
  } catch (const json::exception& error) {
    throw std::runtime_error("the file is damaged: " + io::json_fault(error));
  }
}

}  // namespace pareprop::train
