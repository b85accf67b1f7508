#include "pareprop/text/fixed.h"

#include <array>
#include <charconv>
#include <cmath>

namespace pareprop::text {

std::string fixed(double value, int decimals) {
  std::array<char, 400> buffer;  // the largest double has 309 digits before the point
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, decimals);
  return {buffer.data(), result.ptr};
}

std::string short_number(double value, int digits) {
  std::array<char, 64> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::general, digits);
  std::string out(buffer.data(), result.ptr);
  // 1e+06 and 3e-05 to 1e6 and 3e-5.
  const auto exponent = out.find('e');
  if (exponent == std::string::npos) return out;
  std::size_t at = exponent + 1;
  if (out[at] == '+') {
    out.erase(at, 1);
  } else {
    ++at;
  }
  while (at + 1 < out.size() && out[at] == '0') out.erase(at, 1);
  return out;
}

}  // namespace pareprop::text
