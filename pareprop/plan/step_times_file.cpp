#include "pareprop/plan/step_times_file.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "pareprop/device/choose_device.h"
#include "pareprop/io/atomic_file.h"
#include "pareprop/io/processor.h"

namespace pareprop::plan {
namespace {

namespace fs = std::filesystem;
constexpr int kVersion = 4;

// FNV-1a.
std::string file_name(const std::string& key) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += kDigits[(hash >> shift) & 15U];
  return "times-" + digits + ".json";
}

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0.0; }

bool is_sound(const StepTimes& times) {
  return is_time(times.rest) &&
         std::all_of(times.stacks.begin(), times.stacks.end(), [](const StackTimes& own) {
           const auto& [recover, gradient, weight_gradient] = own.in_lanes;
           const auto all = {own.recover, own.gradient, own.overlapped,
                             recover,     gradient,     weight_gradient};
           return std::all_of(all.begin(), all.end(), is_time);
         });
}

StepTimes times_of(const nlohmann::json& size) {
  StepTimes times{.stacks = {}, .rest = size.at("rest").get<double>()};
  for (const auto& stack : size.at("stacks")) {
    const auto& lanes = stack.at("in_lanes");
    times.stacks.push_back({stack.at("recover").get<double>(),
                            stack.at("gradient").get<double>(),
                            stack.at("overlapped").get<double>(),
                            {lanes.at("recover").get<double>(), lanes.at("gradient").get<double>(),
                             lanes.at("weight_gradient").get<double>()}});
  }
  return times;
}

}  // namespace

std::string this_machine(c10::Device device) {
  return (device.is_cpu()
              ? io::processor_name() + ", " + std::to_string(at::get_num_threads()) + " threads"
              : device_text(device)) +
         ", torch " + TORCH_VERSION;
}

std::optional<fs::path> cache_folder() {
  for (const auto& [variable, below] :
       {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", ".cache"}}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && fs::path(value).is_absolute())
      return fs::path(value) / below / "pareprop";
  }
  return std::nullopt;
}

StepTimesFile::StepTimesFile(fs::path folder, std::string key, c10::Device device)
    : path_(std::move(folder) / file_name(device.is_cpu() ? key : key + ", " + device.str())),
      key_(std::move(key)),
      machine_(this_machine(device)) {}

StepTimesFile::Found StepTimesFile::read() const {
  std::ifstream file(path_);
  if (!file) return {};
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const std::string where = path_.string() + " ";
  try {
    if (json.is_discarded() || json.at("version").get<int>() != kVersion) {
      return {{}, where + "has a different format"};
    }
    if (json.at("key").get<std::string>() != key_) return {};
    if (json.at("machine").get<std::string>() != machine_) {
      return {{},
              where + "was measured on another machine (" + json.at("machine").get<std::string>() +
                  ")"};
    }
    Found found;
    bool sound = true;
    for (const auto& size : json.at("sizes")) {
      const StepSize key{.samples = size.at("samples").get<std::int64_t>(),
                         .adds = size.at("adds").get<bool>()};
      const StepTimes& own = found.times[key] = times_of(size);
      sound = sound && key.samples > 0 && is_sound(own);
    }
    if (sound) return found;
  } catch (const nlohmann::json::exception&) {
    // Told below.
  }
  return {{}, where + "is damaged"};
}

void StepTimesFile::write(const SizeTimes& times) const {
  nlohmann::ordered_json json{{"version", kVersion}, {"machine", machine_}, {"key", key_}};
  auto& sizes = json["sizes"] = nlohmann::ordered_json::array();
  for (const auto& [size, own] : times) {
    auto& entry = sizes.emplace_back(
        nlohmann::ordered_json{{"samples", size.samples}, {"adds", size.adds}, {"rest", own.rest}});
    auto& stacks = entry["stacks"] = nlohmann::ordered_json::array();
    for (const StackTimes& stack : own.stacks) {
      stacks.push_back({{"recover", stack.recover},
                        {"gradient", stack.gradient},
                        {"overlapped", stack.overlapped},
                        {"in_lanes",
                         {{"recover", stack.in_lanes.recover},
                          {"gradient", stack.in_lanes.gradient},
                          {"weight_gradient", stack.in_lanes.weight_gradient}}}});
    }
  }
  fs::create_directories(path_.parent_path());
  io::write_file(path_, json.dump(1) + "\n");
}

}  // namespace pareprop::plan
