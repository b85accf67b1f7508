#pragma once

#include <cstddef>

namespace pareprop::memory {

// Note [Size classes]
// Eight classes from each power of two to the next: 64, 72, 80, ... 120, 128, 144 KiB, ... A
// request is rounded up to the nearest, so less than an eighth of it is wasted, and a power of two,
// the most frequent size of all, wastes nothing.
inline constexpr std::size_t kSmallestLarge = std::size_t{1} << 16;
inline constexpr std::size_t kLargest = std::size_t{1} << 46;
inline constexpr int kSizeClasses = 8 * (46 - 16) + 1;

// The smallest class that holds `bytes`, which must be within kSmallestLarge and kLargest.
int size_class(std::size_t bytes);
std::size_t class_bytes(int size_class);

}  // namespace pareprop::memory
