#include "pareprop/memory/size_classes.h"

#include <bit>

namespace pareprop::memory {
namespace {

constexpr int kFirstPower = std::bit_width(kSmallestLarge) - 1;

}  // namespace

int size_class(std::size_t bytes) {
  const int power = std::bit_width(bytes) - 1;
  const std::size_t step = std::size_t{1} << (power - 3);
  const std::size_t above = bytes - (std::size_t{1} << power);
  return 8 * (power - kFirstPower) + static_cast<int>((above + step - 1) / step);
}

std::size_t class_bytes(int size_class) {
  const auto eighths = static_cast<std::size_t>(8 + size_class % 8);
  return eighths << (kFirstPower + size_class / 8 - 3);
}

}  // namespace pareprop::memory
