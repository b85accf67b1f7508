#include "pareprop/graph/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "pareprop/graph/text.h"

namespace pareprop::text {
namespace {

template <std::size_t N>
std::string scaled(double value, double step, const std::array<const char*, N>& units) {
  std::size_t unit = 0;
  // Compared as it will be printed: 1023.97 KiB is 1.0 MiB, not 1024.0 KiB.
  while (unit + 1 < N && std::round(std::abs(value) * 10.0) / 10.0 >= step) {
    value /= step;
    ++unit;
  }
  const std::string number = fixed(value, unit == 0 ? 0 : 1);
  const std::string word = units[unit];
  return word.empty() ? number : number + " " + word;
}

}  // namespace

std::string bytes_text(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024.0, kUnits);
}

std::string count_text(std::int64_t count) {
  static constexpr std::array kUnits = {"", "k", "M", "G"};
  return scaled(static_cast<double>(count), 1000.0, kUnits);
}

std::string error_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0.0) return "0";
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific, 1);
  return {buffer.data(), end.ptr};
}

std::string percent_text(double share) { return fixed(100.0 * share, 1) + " %"; }

std::string duration_text(double seconds) {
  constexpr double kLongest = 1e15;
  if (std::isnan(seconds)) return "nan";
  if (seconds < 9.995) return fixed(std::max(0.0, seconds), 2) + " s";
  if (seconds < 59.95) return fixed(seconds, 1) + " s";
  const long long all = std::llround(std::min(seconds, kLongest));
  if (all < 3600) return std::to_string(all / 60) + " min " + std::to_string(all % 60) + " s";
  const long long minutes = (all + 30) / 60;
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

}  // namespace pareprop::text
