#pragma once

#include <bit>
#include <cstdint>

#include "pareprop/data/counter_random.h"

namespace pareprop::data {

// The numbers 0 .. size - 1 in an order that the key alone decides. Any place of it is computed
// without the others: nothing is stored, and several threads may ask.
class Shuffle {
 public:
  Shuffle(std::uint64_t size, std::uint64_t key)
      : size_(size),
        half_bits_(size < 3 ? 1 : (static_cast<int>(std::bit_width(size - 1)) + 1) / 2),
        key_(key) {}

  // Of place in [0, size).
  std::uint64_t operator[](std::uint64_t place) const {
    // A Feistel network permutes all numbers of 2 * half_bits_ bits, at most four times as many as
    // there are. Following it from a number of the range leads back into the range, and never from
    // two numbers to the same one.
    do place = permuted(place);
    while (place >= size_);
    return place;
  }

 private:
  static constexpr std::uint64_t kRounds = 8;

  std::uint64_t permuted(std::uint64_t number) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = number >> half_bits_, right = number & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = mix64(key_ + mix64(right + (round << half_bits_)));
      const std::uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t size_;
  int half_bits_;
  std::uint64_t key_;
};

}  // namespace pareprop::data
