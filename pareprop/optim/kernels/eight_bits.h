#pragma once

#include <cstdint>

namespace pareprop::optim {

// Note [Eight bits]
// A block is 256 values that follow one another and share a scale, the largest magnitude among
// them. A magnitude x, as a part of the scale, has the code
//
//   code(x) = first bits of (x * kTop + kNear) - first bits of kNear
//
// where the first bits of a float are its exponent and kMantissa bits more. So 0 has code 0, the
// scale itself has the last code, codes are evenly apart below kNear, and above it they are apart
// by 1/16 to 1/32 of the value. A step of AdamW changes the second moment by a thousandth, much
// less than codes are apart: it is rounded at random, up as often as makes the mean right.
//
// A second moment never becomes 0, unless all of its block are: a weight whose gradient is then 0
// for a step would take one without a bound. The least that it becomes, and how finely the first
// moment is kept near 0, suit each other: what is left of the first moment by rounding is no long
// step either.
constexpr std::int64_t kBlock = 256;
// Scales below it count as 0: dividing by them would overflow.
constexpr float kSmallestScale = 0x1p-120F;

template <bool has_sign, int octaves>
struct EightBitMap {
  static constexpr bool kSigned = has_sign;
  static constexpr int kMantissa = 4;
  static constexpr int kDropped = 23 - kMantissa;  // bits of a float that a code leaves out
  static constexpr std::uint32_t kFirstBits = (127 - octaves) << kMantissa;  // of kNear
  static constexpr std::uint32_t kLast = ((octaves + 1) << kMantissa) - 1;
  static constexpr float kNear = 1.0F / (1 << octaves);
  // The value of the last code, less what products and sums may be off by: nothing is rounded up
  // beyond it.
  static constexpr float kTop = (2.0F - 1.0F / (1 << kMantissa) - kNear) * (1.0F - 0x1p-21F);
};
using SignedMap = EightBitMap<true, 7>;      // seven bits and a sign, for a first moment
using UnsignedMap = EightBitMap<false, 15>;  // for a second moment
static_assert(SignedMap::kLast == 127 && UnsignedMap::kLast == 255);

inline constexpr std::int64_t blocks_of(std::int64_t values) {
  return (values + kBlock - 1) / kBlock;
}

}  // namespace pareprop::optim
