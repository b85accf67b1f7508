#include "cli/units.h"

#include <array>
#include <charconv>
#include <cmath>

#include "pareprop/graph/text.h"

namespace pareprop::cli {
namespace {

template <std::size_t N>
std::string scaled(double value, double step, const std::array<const char*, N>& units) {
  std::size_t unit = 0;
  // Compared as it will be printed: 1023.97 KiB is 1.0 MiB, not 1024.0 KiB.
  while (unit + 1 < N && std::round(std::abs(value) * 10.0) / 10.0 >= step) {
    value /= step;
    ++unit;
  }
  const std::string number = text::fixed(value, unit == 0 ? 0 : 1);
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

std::string percent_text(double share) { return text::fixed(100.0 * share, 1) + " %"; }

std::string yes_no(bool yes) { return yes ? "yes" : "no"; }

}  // namespace pareprop::cli
