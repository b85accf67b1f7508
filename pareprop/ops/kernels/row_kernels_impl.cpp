// Compiled once for each instruction set, with CPU_CAPABILITY naming it.

#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "pareprop/ops/kernels/row_kernels.h"

namespace pareprop::CPU_CAPABILITY {
namespace {

using at::vec::Vectorized;

// Two vectors of T at a time: what one vector of bfloat16 widens to, and enough to keep the
// arithmetic units busy.
template <typename T>
struct Pair {
  using V = Vectorized<T>;
  static constexpr std::int64_t kSize = 2 * V::size();
  V a, b;

  Pair(V first, V second) : a(first), b(second) {}
  explicit Pair(T value) : a(value), b(value) {}

  friend Pair operator+(const Pair& x, const Pair& y) { return {x.a + y.a, x.b + y.b}; }
  friend Pair operator-(const Pair& x, const Pair& y) { return {x.a - y.a, x.b - y.b}; }
  friend Pair operator*(const Pair& x, const Pair& y) { return {x.a * y.a, x.b * y.b}; }
  friend Pair operator/(const Pair& x, const Pair& y) { return {x.a / y.a, x.b / y.b}; }

  template <typename Function>
  Pair map(const Function& f) const {
    return {f(a), f(b)};
  }
};

template <typename T>
Pair<T> multiply_add(const Pair<T>& x, const Pair<T>& y, const Pair<T>& z) {
  return {at::vec::fmadd(x.a, y.a, z.a), at::vec::fmadd(x.b, y.b, z.b)};
}

template <typename T>
Pair<T> maximum(const Pair<T>& x, const Pair<T>& y) {
  return {at::vec::maximum(x.a, y.a), at::vec::maximum(x.b, y.b)};
}

template <typename T, typename S>
Pair<T> load(const S* p) {
  if constexpr (std::is_same_v<T, S>) {
    using V = Vectorized<T>;
    return {V::loadu(p), V::loadu(p + V::size())};
  } else {
    const auto [a, b] = at::vec::convert_bfloat16_float(Vectorized<S>::loadu(p));
    return {a, b};
  }
}

template <typename T, typename S>
void store(const Pair<T>& x, S* p) {
  if constexpr (std::is_same_v<T, S>) {
    x.a.store(p);
    x.b.store(p + Vectorized<T>::size());
  } else {
    at::vec::convert_float_bfloat16(x.a, x.b).store(p);
  }
}

// The end of a row, shorter than a pair; `fill` stands where nothing is. Value by value: the
// library function that copies so few takes longer than the arithmetic on them.
template <typename T, typename S>
Pair<T> load_part(const S* p, std::int64_t count, T fill) {
  alignas(64) S buffer[Pair<T>::kSize];
  for (std::int64_t i = 0; i < Pair<T>::kSize; ++i) {
    buffer[i] = i < count ? p[i] : static_cast<S>(fill);
  }
  return load<T>(static_cast<const S*>(buffer));
}

template <typename T, typename S>
void store_part(const Pair<T>& x, S* p, std::int64_t count) {
  alignas(64) S buffer[Pair<T>::kSize];
  store(x, static_cast<S*>(buffer));
  for (std::int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}

#ifdef CPU_CAPABILITY_AVX512
// There the instructions themselves leave out what is not there.
inline __mmask32 first_of(std::int64_t count) {
  return static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
}

template <>
inline Pair<float> load_part(const float* p, std::int64_t count, float fill) {
  const __mmask32 there = first_of(count);
  const __m512 none = _mm512_set1_ps(fill);
  return {_mm512_mask_loadu_ps(none, static_cast<__mmask16>(there), p),
          _mm512_mask_loadu_ps(none, static_cast<__mmask16>(there >> 16), p + 16)};
}

template <>
inline Pair<float> load_part(const c10::BFloat16* p, std::int64_t count, float fill) {
  const __m512i none = _mm512_set1_epi16(static_cast<short>(c10::BFloat16(fill).x));
  const auto [a, b] = at::vec::convert_bfloat16_float(
      Vectorized<c10::BFloat16>(_mm512_mask_loadu_epi16(none, first_of(count), p)));
  return {a, b};
}

template <>
inline void store_part(const Pair<float>& x, float* p, std::int64_t count) {
  const __mmask32 there = first_of(count);
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(there), x.a);
  _mm512_mask_storeu_ps(p + 16, static_cast<__mmask16>(there >> 16), x.b);
}

template <>
inline void store_part(const Pair<float>& x, c10::BFloat16* p, std::int64_t count) {
  _mm512_mask_storeu_epi16(p, first_of(count), at::vec::convert_float_bfloat16(x.a, x.b));
}
#endif

// Calls body(offset, load, store) along a row: load(p, fill) and store(x, p) work on p + offset.
template <typename T, typename Body>
inline void along(std::int64_t width, const Body& body) {
  constexpr std::int64_t kStep = Pair<T>::kSize;
  std::int64_t i = 0;
  for (; i + kStep <= width; i += kStep) {
    body([i](const auto* p, T = T(0)) { return load<T>(p + i); },
         [i](const Pair<T>& x, auto* p) { store(x, p + i); });
  }
  if (const std::int64_t rest = width - i; rest > 0) {
    body([i, rest](const auto* p, T fill = T(0)) { return load_part<T>(p + i, rest, fill); },
         [i, rest](const Pair<T>& x, auto* p) { store_part(x, p + i, rest); });
  }
}

template <typename T>
T sum(const Pair<T>& x) {
  alignas(64) T lanes[Vectorized<T>::size()];
  (x.a + x.b).store(lanes);
  T total = 0;
  for (const T lane : lanes) total += lane;
  return total;
}

template <typename T>
T largest(const Pair<T>& x) {
  alignas(64) T lanes[Vectorized<T>::size()];
  at::vec::maximum(x.a, x.b).store(lanes);
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

template <typename T, typename S>
void norm(const T* x, const T* weight, const T* bias, double eps, std::int64_t rows,
          std::int64_t width, S* y, T* mean, T* rstd) {
  const T count = static_cast<T>(width);
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    Pair<T> total(T(0));
    along<T>(width, [&](auto get, auto) { total = total + get(x); });
    const T m = sum(total) / count;
    Pair<T> squares(T(0));
    along<T>(width, [&](auto get, auto) {
      const Pair<T> d = get(x, m) - Pair<T>(m);
      squares = multiply_add(d, d, squares);
    });
    const T scale = T(1) / std::sqrt(sum(squares) / count + static_cast<T>(eps));
    mean[r] = m;
    rstd[r] = scale;
    along<T>(width, [&](auto get, auto put) {
      const Pair<T> hat = (get(x) - Pair<T>(m)) * Pair<T>(scale);
      put(multiply_add(hat, get(weight), get(bias)), y);
    });
  }
}

template <typename T, typename S>
void norm_backward(const S* dy, const T* x, const T* weight, const T* mean, const T* rstd,
                   std::int64_t rows, std::int64_t width, T* dx, T* dweight, T* dbias) {
  const T count = static_cast<T>(width);
  for (std::int64_t r = 0; r < rows; ++r, dy += width, x += width, dx += width) {
    const Pair<T> m(mean[r]), scale(rstd[r]);
    Pair<T> along_one(T(0)), along_hat(T(0));
    along<T>(width, [&](auto get, auto put) {
      const Pair<T> g = get(dy), hat = (get(x) - m) * scale, weighted = g * get(weight);
      along_one = along_one + weighted;
      along_hat = multiply_add(weighted, hat, along_hat);
      put(multiply_add(g, hat, get(dweight)), dweight);
      put(get(dbias) + g, dbias);
    });
    const Pair<T> one(sum(along_one) / count), hat_part(sum(along_hat) / count);
    along<T>(width, [&](auto get, auto put) {
      const Pair<T> hat = (get(x) - m) * scale;
      put(scale * (get(dy) * get(weight) - one - hat * hat_part), dx);
    });
  }
}

// gelu(x) = x * cdf(x), with slope cdf(x) + x * density(x).
template <typename T>
struct Gelu {
  Pair<T> value, slope;
};

inline Gelu<double> gelu(const Pair<double>& x) {
  const Pair<double> half(0.5);
  const Pair<double> erf =
      (x * Pair<double>(std::sqrt(0.5))).map([](const auto& v) { return v.erf(); });
  const Pair<double> cdf = multiply_add(erf, half, half);
  const Pair<double> density = (x * x * Pair<double>(-0.5)).map([](const auto& v) {
    return v.exp();
  }) * Pair<double>(0.3989422804014327);
  return {x * cdf, multiply_add(x, density, cdf)};
}

// One exponential serves both: erf(z) = 1 - polynomial(t) * exp(-z * z), t = 1 / (1 + p * |z|)
// (Abramowitz and Stegun 7.1.26, off by at most 1.5e-7) with z = x / sqrt(2), so that exp(-z * z)
// is the density but for its factor.
inline Gelu<float> gelu(const Pair<float>& x) {
  const auto constant = [](double value) { return Pair<float>(static_cast<float>(value)); };
  const Pair<float> bell = (x * x * constant(-0.5)).map([](const auto& v) { return v.exp_u20(); });
  const Pair<float> size = x.map([](const auto& v) { return v.abs(); });
  const Pair<float> t =
      constant(1.0) / multiply_add(size, constant(0.3275911 * 0.7071067811865476), constant(1.0));
  Pair<float> tail = constant(1.061405429);
  for (const double coefficient : {-1.453152027, 1.421413741, -0.284496736, 0.254829592}) {
    tail = multiply_add(tail, t, constant(coefficient));
  }
  tail = tail * t * bell * constant(0.5);  // the probability beyond |x|
  const auto side = [](const Vectorized<float>& v, const Vectorized<float>& beyond) {
    return Vectorized<float>::blendv(Vectorized<float>(1.0F) - beyond, beyond,
                                     v < Vectorized<float>(0.0F));
  };
  const Pair<float> cdf(side(x.a, tail.a), side(x.b, tail.b));
  return {x * cdf, multiply_add(x * constant(0.3989422804014327), bell, cdf)};
}

template <typename T, typename S>
void bias_gelu(const S* x, const T* bias, std::int64_t rows, std::int64_t width, S* h, S* slope) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, h += width) {
    along<T>(width, [&](auto get, auto put) {
      const Gelu<T> g = gelu(get(x) + get(bias));
      put(g.value, h);
      if (slope != nullptr) put(g.slope, slope);
    });
    if (slope != nullptr) slope += width;
  }
}

template <typename T, typename S>
void add_rows(const S* x, std::int64_t rows, std::int64_t width, T* sums) {
  for (std::int64_t r = 0; r < rows; ++r, x += width) {
    along<T>(width, [&](auto get, auto put) { put(get(sums) + get(x), sums); });
  }
}

template <typename T, typename S>
void add_scaled(const T* u, const S* f, T factor, std::int64_t count, T* sum) {
  const Pair<T> by(factor);
  along<T>(count, [&](auto get, auto put) { put(multiply_add(get(f), by, get(u)), sum); });
}

template <typename T, typename S>
void add_rounded(const std::int32_t* u, const S* f, T factor, std::int64_t count,
                 std::int32_t* sum) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr std::int64_t kStep = Pair<T>::kSize;
    const Pair<T> by(factor);
    alignas(64) std::int32_t change[kStep];
    for (std::int64_t i = 0; i < count; i += kStep) {
      const std::int64_t rest = std::min(kStep, count - i);
      const Pair<T> x = rest == kStep ? load<T>(f + i) : load_part<T>(f + i, rest, T(0));
      const Pair<T> rounded = (x * by).map([](const auto& v) { return v.round(); });
      at::vec::convert_to_int_of_same_size(rounded.a).store(change);
      at::vec::convert_to_int_of_same_size(rounded.b).store(change + kStep / 2);
      for (std::int64_t j = 0; j < rest; ++j) {
        // Unsigned, as the sum may wrap around.
        sum[i + j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(u[i + j]) +
                                               static_cast<std::uint32_t>(change[j]));
      }
    }
  }
}

inline Pair<double> exponential(const Pair<double>& x) {
  return x.map([](const auto& v) { return v.exp(); });
}
// Right to 20 units in the last place, as in torch's own attention.
inline Pair<float> exponential(const Pair<float>& x) {
  return x.map([](const auto& v) { return v.exp_u20(); });
}

template <typename T, typename S>
void softmax(T* s, T scale, const T* bias, const T* mask, std::int64_t width, S* p) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const Pair<T> by(scale);
  Pair<T> top(kNone);
  along<T>(width, [&](auto get, auto put) {
    Pair<T> x = get(s, kNone) * by;
    if (bias != nullptr) x = x + get(bias);
    if (mask != nullptr) x = x + get(mask);
    put(x, s);
    top = maximum(top, x);
  });
  const Pair<T> shift(largest(top));
  Pair<T> total(T(0));
  along<T>(width, [&](auto get, auto put) {
    const Pair<T> e = exponential(get(s, kNone) - shift);
    put(e, s);
    total = total + e;
  });
  const Pair<T> share(T(1) / sum(total));
  along<T>(width, [&](auto get, auto put) { put(get(s) * share, p); });
}

template <typename T, typename S>
void shifted_product(const S* p, T* dp, T shift, std::int64_t width, [[maybe_unused]] S* ds) {
  const Pair<T> by(shift);
  along<T>(width, [&](auto get, auto put) {
    const Pair<T> d = get(p) * (get(dp) - by);
    put(d, dp);
    if constexpr (!std::is_same_v<T, S>) put(d, ds);
  });
}

template <typename T, typename S>
void softmax_backward(const S* p, T* dp, std::int64_t width, S* ds) {
  Pair<T> total(T(0));
  along<T>(width, [&](auto get, auto) { total = multiply_add(get(p), get(dp), total); });
  shifted_product(p, dp, sum(total), width, ds);
}

// Scores are written back only where terms were added to them: exponentials() scales them itself.
template <typename T, typename S>
void softmax_part(T* s, T scale, const T* bias, const T* mask, std::int64_t width, T* top, T* total,
                  T* change, S* p) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const Pair<T> by(scale);
  const bool terms = bias != nullptr || mask != nullptr;
  Pair<T> most(kNone);
  along<T>(width, [&](auto get, auto put) {
    Pair<T> x = get(s, kNone) * by;
    if (bias != nullptr) x = x + get(bias);
    if (mask != nullptr) x = x + get(mask);
    if (terms) put(x, s);
    most = maximum(most, x);
  });
  const T before = *top, now = std::max(before, largest(most));
  const T shift = now == kNone ? T(0) : now;  // nothing but masked keys so far
  const Pair<T> factor(terms ? T(1) : scale), less(-shift);
  Pair<T> added(T(0));
  along<T>(width, [&](auto get, auto put) {
    const Pair<T> e = exponential(multiply_add(get(s, kNone), factor, less));
    put(e, p);
    added = added + e;
  });
  *change = before == now ? T(1) : std::exp(before - shift);
  *top = now;
  *total = *total * *change + sum(added);
}

template <typename T, typename S>
void exponentials(const T* s, T scale, const T* bias, const T* mask, T shift, std::int64_t width,
                  S* p) {
  const Pair<T> by(scale), less(-shift);
  along<T>(width, [&](auto get, auto put) {
    Pair<T> x = multiply_add(get(s), by, less);
    if (bias != nullptr) x = x + get(bias);
    if (mask != nullptr) x = x + get(mask);
    put(exponential(x), p);
  });
}

template <typename T, typename S>
void scaled(const T* x, T factor, std::int64_t count, S* y) {
  const Pair<T> by(factor);
  along<T>(count, [&](auto get, auto put) { put(get(x) * by, y); });
}

template <typename T, typename S>
constexpr RowKernels<T, S> table() {
  return {&norm<T, S>,         &norm_backward<T, S>,    &bias_gelu<T, S>,
          &add_rows<T, S>,     &add_scaled<T, S>,       &add_rounded<T, S>,
          &softmax<T, S>,      &softmax_backward<T, S>, &softmax_part<T, S>,
          &exponentials<T, S>, &shifted_product<T, S>,  &scaled<T, S>};
}

}  // namespace

extern const RowKernels<float, float> kFloat = table<float, float>();
extern const RowKernels<double, double> kDouble = table<double, double>();
extern const RowKernels<float, c10::BFloat16> kBfloat16 = table<float, c10::BFloat16>();

}  // namespace pareprop::CPU_CAPABILITY
