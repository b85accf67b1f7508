#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pareprop::train {

enum class Decay : std::uint8_t { cosine, linear, constant };

std::string_view name(Decay decay);
// Throws std::invalid_argument that lists the names there are.
Decay decay_of(std::string_view name);

// The learning rate of every step: up to `peak` in `warmup` steps, linearly, then down to `last` at
// step `total`, and from there on.
struct LearningRate {
  double peak = 1e-3;
  double last = 0.0;
  std::int64_t warmup = 0;
  std::int64_t total = 1;
  Decay decay = Decay::cosine;

  // Of step 0, 1, ...
  double at(std::int64_t step) const;
  // Throws std::invalid_argument when the numbers contradict each other.
  void check() const;
};

}  // namespace pareprop::train
