#pragma once

// Eight numbers at a time, for sources that are compiled for one instruction set each: everything
// here is of that source alone.

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <c10/util/BFloat16.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace pareprop::optim {
namespace {

constexpr std::int64_t kLanes = 8;
using Floats8 = float __attribute__((vector_size(32)));
using Bits8 = std::uint32_t __attribute__((vector_size(32)));
using Numbers4 = std::uint64_t __attribute__((vector_size(32)));

inline Bits8 bits_of(Floats8 x) { return reinterpret_cast<Bits8>(x); }
inline Floats8 floats_of(Bits8 x) { return reinterpret_cast<Floats8>(x); }
inline Floats8 all_of(float x) { return Floats8{} + x; }
inline Bits8 all_of(std::uint32_t x) { return Bits8{} + x; }

template <typename Vector>
inline Vector load_vector(const void* from) {
  Vector x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
template <typename Vector>
inline void store_vector(Vector x, void* to) {
  std::memcpy(to, &x, sizeof(x));
}

#ifdef __AVX2__
inline Bits8 widened(const std::uint8_t* from) {
  return reinterpret_cast<Bits8>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}
inline Bits8 widened(const std::uint16_t* from) {
  return reinterpret_cast<Bits8>(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
inline Floats8 root(Floats8 x) { return _mm256_sqrt_ps(x); }
inline Bits8 larger(Bits8 x, Bits8 y) {
  return reinterpret_cast<Bits8>(
      _mm256_max_epu32(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y)));
}
// Of numbers below 2^16.
inline void store_narrow(Bits8 a, Bits8 b, std::uint16_t* to) {
  const __m256i both =
      _mm256_packus_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(both, 0xD8));
}
// Of numbers below 2^8, at least `least`.
inline void store_narrow(const Bits8 (&x)[4], std::uint8_t least, std::uint8_t* to) {
  const __m256i low =
      _mm256_packus_epi32(reinterpret_cast<__m256i>(x[0]), reinterpret_cast<__m256i>(x[1]));
  const __m256i high =
      _mm256_packus_epi32(reinterpret_cast<__m256i>(x[2]), reinterpret_cast<__m256i>(x[3]));
  const __m256i all =
      _mm256_max_epu8(_mm256_packus_epi16(low, high), _mm256_set1_epi8(static_cast<char>(least)));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(all, order));
}
// Products modulo 2^64, of which the instruction set has none.
inline Numbers4 times(Numbers4 x, std::uint64_t y) {
  const auto a = reinterpret_cast<__m256i>(x);
  const __m256i low = _mm256_set1_epi64x(static_cast<long long>(y));
  const __m256i high = _mm256_set1_epi64x(static_cast<long long>(y >> 32));
  const __m256i across =
      _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), low), _mm256_mul_epu32(a, high));
  return reinterpret_cast<Numbers4>(
      _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(across, 32)));
}
#else
template <typename Narrow>
inline Bits8 widened(const Narrow* from) {
  Bits8 x;
  for (int i = 0; i < kLanes; ++i) x[i] = from[i];
  return x;
}
inline Floats8 root(Floats8 x) {
  for (int i = 0; i < kLanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}
inline Bits8 larger(Bits8 x, Bits8 y) { return x > y ? x : y; }
inline void store_narrow(Bits8 a, Bits8 b, std::uint16_t* to) {
  for (int i = 0; i < kLanes; ++i) {
    to[i] = static_cast<std::uint16_t>(a[i]);
    to[kLanes + i] = static_cast<std::uint16_t>(b[i]);
  }
}
inline void store_narrow(const Bits8 (&x)[4], std::uint8_t least, std::uint8_t* to) {
  for (int i = 0; i < 4 * kLanes; ++i) {
    const auto byte = static_cast<std::uint8_t>(x[i / kLanes][i % kLanes]);
    to[i] = byte < least ? least : byte;
  }
}
inline Numbers4 times(Numbers4 x, std::uint64_t y) { return x * y; }
#endif

inline std::uint32_t largest(Bits8 x) {
  std::uint32_t most = 0;
  for (int i = 0; i < kLanes; ++i) most = most < x[i] ? x[i] : most;
  return most;
}

}  // namespace
}  // namespace pareprop::optim
