#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace pareprop::data {

// Each of the 64 bits of the result depends on every bit of `value` (splitmix64's finaliser).
constexpr std::uint64_t mix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Random numbers that are a function of a key and of how many were drawn before: no global state,
// the same on every thread. Keys are lists like {seed, epoch, position}; any
// difference, also in length, gives unrelated numbers.
class CounterRandom {
 public:
  CounterRandom(std::initializer_list<std::uint64_t> key) : state_(mix64(key.size() + kStep)) {
    for (const std::uint64_t part : key) state_ = mix64(state_ + mix64(part + kStep));
  }

  std::uint64_t next() { return mix64(state_ += kStep); }

  // In [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // In [0, n), every number as likely as the others; 0 when n is 0.
  std::uint64_t below(std::uint64_t n) {
    if (n == 0) return 0;
    // 2^64 is not a multiple of n: draws of the incomplete last interval are drawn again.
    const std::uint64_t incomplete = (0 - n) % n;
    std::uint64_t draw = next();
    while (draw < incomplete) draw = next();
    return draw % n;
  }

  // Mean 0, variance 1 (Box and Muller's).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  std::uint64_t state_;
};

}  // namespace pareprop::data
