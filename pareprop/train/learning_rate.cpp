#include "pareprop/train/learning_rate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <utility>

namespace pareprop::train {
namespace {

constexpr std::array<std::pair<Decay, std::string_view>, 3> kNames = {
    {{Decay::cosine, "cosine"}, {Decay::linear, "linear"}, {Decay::constant, "constant"}}};

}  // namespace

std::string_view name(Decay decay) { return kNames.at(static_cast<std::size_t>(decay)).second; }

Decay decay_of(std::string_view name) {
  std::string all;
  for (const auto& [decay, known] : kNames) {
    if (known == name) return decay;
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  throw std::invalid_argument("there is no learning-rate decay '" + std::string(name) +
                              "'; expected one of " + all);
}

double LearningRate::at(std::int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::constant) return peak;
  if (step >= total) return last;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  const double left =
      decay == Decay::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return last + (peak - last) * left;
}

void LearningRate::check() const {
  const auto refuse = [](const std::string& why) {
    throw std::invalid_argument("learning rate: " + why);
  };
  if (!(peak > 0.0) || !std::isfinite(peak)) {
    refuse("the peak is " + std::to_string(peak) + ", expected more than 0");
  }
  if (!(last >= 0.0 && last <= peak)) {
    refuse("the last value is " + std::to_string(last) + ", expected 0 to the peak, " +
           std::to_string(peak));
  }
  if (total < 1) refuse("there are " + std::to_string(total) + " steps, expected 1 or more");
  if (warmup < 0 || warmup > total) {
    refuse("the warm-up takes " + std::to_string(warmup) + " steps, expected 0 to all " +
           std::to_string(total));
  }
}

}  // namespace pareprop::train
