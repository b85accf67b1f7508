#include "pareprop/text/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "pareprop/text/fixed.h"

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

namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument(std::string("'").append(text) + "' is not a number of bytes: " + why +
                              "; expected a number and a unit, such as 512MiB or 8GiB (powers of "
                              "1024), or 8GB (powers of 1000)");
}

// Bytes of a unit in lower case; 0: there is none such.
double unit_bytes(std::string_view unit) {
  if (unit == "b") return 1.0;
  constexpr std::string_view kPrefixes = "kmgtp";
  const bool binary = unit.size() == 3 && unit.substr(1) == "ib";
  const bool decimal = unit.size() == 2 && unit[1] == 'b';
  const auto power = unit.empty() ? std::string_view::npos : kPrefixes.find(unit[0]);
  if ((!binary && !decimal) || power == std::string_view::npos) return 0.0;
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

}  // namespace

std::int64_t parse_byte_size(std::string_view text) {
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number))
    refuse(text, "it does not begin with a number");
  if (number < 0.0) refuse(text, "it is negative");
  std::string unit;
  for (const char* at = after; at != end; ++at) {
    if (!unit.empty() || *at != ' ') {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
    }
  }
  if (unit.empty()) refuse(text, "the unit is missing");
  const double of_unit = unit_bytes(unit);
  if (of_unit == 0.0) refuse(text, "'" + unit + "' is not a unit");
  const double bytes = std::round(number * of_unit);
  if (bytes > 9e18) refuse(text, "it is too large");
  return static_cast<std::int64_t>(bytes);
}

}  // namespace pareprop::text
