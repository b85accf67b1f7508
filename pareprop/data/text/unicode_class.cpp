#include "pareprop/data/text/unicode_class.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace pareprop::data {
namespace {

struct Range {
  char32_t first;
  char32_t last;
  UnicodeClass kind;
};

using enum UnicodeClass;

constexpr Range kRanges[] = {
#include "pareprop/data/text/unicode_ranges.inc"
};

UnicodeClass look_up(char32_t code) {
  const Range* const after =
      std::upper_bound(std::begin(kRanges), std::end(kRanges), code,
                       [](char32_t value, const Range& range) { return value < range.first; });
  if (after == std::begin(kRanges)) return other;
  const Range& range = *std::prev(after);
  return code <= range.last ? range.kind : other;
}

constexpr std::size_t kAscii = 128;

std::array<UnicodeClass, kAscii> ascii_classes() {
  std::array<UnicodeClass, kAscii> result{};
  for (std::size_t i = 0; i < kAscii; ++i) result[i] = look_up(static_cast<char32_t>(i));
  return result;
}

}  // namespace

UnicodeClass unicode_class(char32_t code) {
  static const std::array<UnicodeClass, kAscii> ascii = ascii_classes();
  return code < kAscii ? ascii[code] : look_up(code);
}

}  // namespace pareprop::data
