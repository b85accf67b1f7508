#include "pareprop/plan/byte_size.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pareprop::plan {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument(std::string("'").append(text) + "' is no number of bytes: " + why +
                              "; expected a number and a unit, such as 8GiB (of 1024), 8GB (of "
                              "1000) or 512MiB");
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
  if (error != std::errc() || !std::isfinite(number)) refuse(text, "it does not begin with one");
  if (number < 0.0) refuse(text, "it is negative");
  std::string unit;
  for (const char* at = after; at != end; ++at) {
    if (!unit.empty() || *at != ' ') {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
    }
  }
  if (unit.empty()) refuse(text, "its unit is missing");
  const double of_unit = unit_bytes(unit);
  if (of_unit == 0.0) refuse(text, "'" + unit + "' is no unit");
  const double bytes = std::round(number * of_unit);
  if (bytes > 9e18) refuse(text, "it is too large");
  return static_cast<std::int64_t>(bytes);
}

}  // namespace pareprop::plan
