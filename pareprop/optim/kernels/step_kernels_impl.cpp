// Compiled once for each instruction set, with CPU_CAPABILITY naming it. Products and sums are not
// contracted, so that all instruction sets give the same bits.

#include <algorithm>
#include <type_traits>

#include "pareprop/optim/kernels/lanes_of_eight.h"
#include "pareprop/optim/kernels/step_kernels.h"

namespace pareprop::optim::CPU_CAPABILITY {

template <typename Weight, typename State>
const StepKernels<Weight, State>& kernels();

namespace {

using c10::BFloat16;

constexpr std::uint32_t kSign = 0x80000000;
constexpr std::int64_t kRow = 4 * kLanes;  // what is stored at a time

struct alignas(64) BlockOfFloats {
  float at[kBlock];
};
struct alignas(64) Random {
  std::uint16_t at[kBlock];
};

// Of elements [first, first + kBlock). Note [Rounding at random]
void draw_random(std::uint64_t key, std::int64_t first, Random& random) {
  constexpr int kOfNumber = 4, kAtATime = 4;
  const auto number = static_cast<std::uint64_t>(first / kOfNumber);
  Numbers4 state = key + (Numbers4{1, 2, 3, 4} + number) * Rounding::kStep;
  for (std::int64_t i = 0; i < kBlock; i += kOfNumber * kAtATime) {
    Numbers4 x = state;
    x = times(x ^ (x >> 30), Rounding::kFirstFactor);
    x = times(x ^ (x >> 27), Rounding::kSecondFactor);
    store_vector(x ^ (x >> 31), random.at + i);
    state += kAtATime * Rounding::kStep;
  }
}

inline Floats8 load(const float* from) { return load_vector<Floats8>(from); }
inline Floats8 load(const BFloat16* from) {
  return floats_of(widened(reinterpret_cast<const std::uint16_t*>(from)) << 16);
}

// kRow values.
inline void store(const Floats8 (&x)[4], const std::uint16_t*, float* to) {
  for (int i = 0; i < 4; ++i) store_vector(x[i], to + i * kLanes);
}
inline void store(const Floats8 (&x)[4], const std::uint16_t* random, BFloat16* to) {
  for (int i = 0; i < 4; i += 2) {
    const std::uint16_t* const own = random + i * kLanes;
    store_narrow((bits_of(x[i]) + widened(own)) >> 16,
                 (bits_of(x[i + 1]) + widened(own + kLanes)) >> 16,
                 reinterpret_cast<std::uint16_t*>(to) + i * kLanes);
  }
}

// Of values to be rounded: not all that are no numbers are far from a carry into the sign.
inline Floats8 kept_nan(Floats8 x) { return x == x ? x : floats_of(all_of(0x7fc00000U)); }

// Note [Eight bits]
template <typename Map>
inline Floats8 decoded(const std::uint8_t* codes, float unit) {
  const Bits8 code = widened(codes);
  const Bits8 magnitude = Map::kSigned ? code & Map::kLast : code;
  const Floats8 part = floats_of((magnitude + Map::kFirstBits) << Map::kDropped) - Map::kNear;
  if constexpr (!Map::kSigned) return part * unit;
  return floats_of(bits_of(part * unit) | ((code << 24) & kSign));
}

template <typename Map>
inline Bits8 encoded(Floats8 value, float factor, Bits8 random) {
  const Bits8 bits = bits_of(value);
  const Floats8 part = floats_of(Map::kSigned ? bits & ~kSign : bits) * factor + Map::kNear;
  const Bits8 code =
      ((bits_of(part) + (random << (Map::kDropped - 16))) >> Map::kDropped) - Map::kFirstBits;
  return Map::kSigned ? code | ((bits >> 24) & 0x80U) : code;
}

// What values of a block with this scale are multiplied by before they are encoded.
template <typename Map>
float factor_of(float scale) {
  return scale < kSmallestScale ? 0.0F : Map::kTop / scale;
}

template <typename Map>
void encode(const BlockOfFloats& from, const Random& random, float scale, std::uint8_t* codes) {
  const float factor = factor_of<Map>(scale);
  for (std::int64_t i = 0; i < kBlock; i += kRow) {
    Bits8 row[4];
    for (int j = 0; j < 4; ++j) {
      const std::int64_t at = i + j * kLanes;
      row[j] = encoded<Map>(load(from.at + at), factor, widened(random.at + at));
    }
    store_narrow(row, Map::kSigned ? 0 : 1, codes + i);
  }
}

// The next block comes while this one is computed.
template <typename Value>
inline void prefetch_next(const Value* block) {
  constexpr std::int64_t kLine = 64 / sizeof(Value);
  for (std::int64_t i = kBlock; i < 2 * kBlock; i += kLine) __builtin_prefetch(block + i);
}

template <typename State>
constexpr bool kIsCode = std::is_same_v<State, std::uint8_t>;
template <typename Value>
constexpr bool kIsRounded = !std::is_same_v<Value, float>;

// Random bits of state and weights, as far as their types need them.
template <typename Weight, typename State>
struct RandomOfBlock {
  Random state, weights;

  RandomOfBlock(const Rounding& rounding, std::int64_t first) {
    if constexpr (kIsRounded<State>) draw_random(rounding.state_key, first, state);
    if constexpr (kIsRounded<Weight>) draw_random(rounding.weight_key, first, weights);
  }
};

template <typename Weight, typename State>
void adamw_block(Weight* weights, const Weight* gradients, MomentData<State> average,
                 MomentData<State> square_average, std::int64_t first, const AdamWStep& s,
                 const Rounding& rounding) {
  prefetch_next(weights);
  prefetch_next(gradients);
  prefetch_next(average.values);
  prefetch_next(square_average.values);
  const RandomOfBlock<Weight, State> random(rounding, first);
  // Moments come multiplied by their factors.
  const auto next_weights = [&](std::int64_t i, Floats8& mean, Floats8& square) {
    const Floats8 gradient = load(gradients + i);
    mean = mean + gradient * s.average_share;
    square = square + gradient * gradient * s.square_share;
    const Floats8 size = root(square) * s.square_correction + s.eps;
    const Floats8 next = load(weights + i) * s.weight_factor - mean / size * s.rate;
    return kIsRounded<Weight> ? kept_nan(next) : next;
  };
  [[maybe_unused]] BlockOfFloats means, squares;
  [[maybe_unused]] Bits8 top{}, square_top{};
  [[maybe_unused]] float unit = 0.0F, square_unit = 0.0F;
  if constexpr (kIsCode<State>) {
    unit = *average.scales / SignedMap::kTop * s.average_factor;
    square_unit = *square_average.scales / UnsignedMap::kTop * s.square_factor;
  }
  for (std::int64_t i = 0; i < kBlock; i += kRow) {
    Floats8 mean[4], square[4], next[4];
    for (int j = 0; j < 4; ++j) {
      const std::int64_t at = i + j * kLanes;
      if constexpr (kIsCode<State>) {
        mean[j] = decoded<SignedMap>(average.values + at, unit);
        square[j] = decoded<UnsignedMap>(square_average.values + at, square_unit);
      } else {
        mean[j] = load(average.values + at) * s.average_factor;
        square[j] = load(square_average.values + at) * s.square_factor;
      }
      next[j] = next_weights(at, mean[j], square[j]);
      if constexpr (kIsCode<State>) {
        store_vector(mean[j], means.at + at);
        store_vector(square[j], squares.at + at);
        top = larger(top, bits_of(mean[j]) & ~kSign);
        square_top = larger(square_top, bits_of(square[j]));
      }
    }
    store(next, random.weights.at + i, weights + i);
    if constexpr (!kIsCode<State>) {
      store(mean, random.state.at + i, average.values + i);
      store(square, random.state.at + i, square_average.values + i);
    }
  }
  if constexpr (kIsCode<State>) {
    *average.scales = std::bit_cast<float>(largest(top));
    *square_average.scales = std::bit_cast<float>(largest(square_top));
    encode<SignedMap>(means, random.state, *average.scales, average.values);
    encode<UnsignedMap>(squares, random.state, *square_average.scales, square_average.values);
  }
}

template <typename Weight, typename State>
void sgd_block(Weight* weights, const Weight* gradients, MomentData<State> momentum,
               std::int64_t first, const SgdStep& step, const Rounding& rounding) {
  const bool has_momentum = momentum.values != nullptr;
  prefetch_next(weights);
  prefetch_next(gradients);
  if (has_momentum) prefetch_next(momentum.values);
  const RandomOfBlock<Weight, State> random(rounding, first);
  const auto factor = static_cast<float>(step.gradient_factor);
  const auto decay = static_cast<float>(step.weight_decay);
  const auto keep = static_cast<float>(step.momentum);
  const auto rate = static_cast<float>(step.rate);
  [[maybe_unused]] BlockOfFloats means;
  [[maybe_unused]] Bits8 top{};
  [[maybe_unused]] float unit = 0.0F;
  if constexpr (kIsCode<State>)
    unit = has_momentum ? *momentum.scales / SignedMap::kTop * keep : 0.0F;
  for (std::int64_t i = 0; i < kBlock; i += kRow) {
    Floats8 mean[4], next[4];
    for (int j = 0; j < 4; ++j) {
      const std::int64_t at = i + j * kLanes;
      const Floats8 weight = load(weights + at);
      mean[j] = load(gradients + at) * factor + weight * decay;
      if (has_momentum) {
        if constexpr (kIsCode<State>) {
          mean[j] = decoded<SignedMap>(momentum.values + at, unit) + mean[j];
          store_vector(mean[j], means.at + at);
          top = larger(top, bits_of(mean[j]) & ~kSign);
        } else {
          mean[j] = load(momentum.values + at) * keep + mean[j];
        }
      }
      next[j] = weight - mean[j] * rate;
      if constexpr (kIsRounded<Weight>) next[j] = kept_nan(next[j]);
    }
    store(next, random.weights.at + i, weights + i);
    if constexpr (!kIsCode<State>) {
      if (has_momentum) store(mean, random.state.at + i, momentum.values + i);
    }
  }
  if constexpr (kIsCode<State>) {
    if (!has_momentum) return;
    *momentum.scales = std::bit_cast<float>(largest(top));
    encode<SignedMap>(means, random.state, *momentum.scales, momentum.values);
  }
}

// The last values of a parameter as a whole block, with zeros behind them. Copied back when it
// ends, unless they are const.
template <typename Value>
class LastBlock {
 public:
  LastBlock(Value* values, std::int64_t count) : values_(values), count_(count) {
    if (values != nullptr) std::copy(values, values + count, block_);
  }
  ~LastBlock() {
    if constexpr (!std::is_const_v<Value>) {
      if (values_ != nullptr) std::copy(block_, block_ + count_, values_);
    }
  }
  LastBlock(const LastBlock&) = delete;
  LastBlock& operator=(const LastBlock&) = delete;

  Value* data() { return values_ == nullptr ? nullptr : block_; }

 private:
  Value* values_;
  std::int64_t count_;
  alignas(64) std::remove_const_t<Value> block_[kBlock] = {};
};

template <typename State>
MomentData<State> moved(const MomentData<State>& moment, std::int64_t by) {
  if (moment.values == nullptr) return {};
  return {moment.values + by, moment.scales == nullptr ? nullptr : moment.scales + by / kBlock};
}

template <typename Weight, typename State>
void adamw(Weight* weights, const Weight* gradients, MomentData<State> average,
           MomentData<State> square_average, std::int64_t first, std::int64_t count,
           const AdamWStep& step, const Rounding& rounding) {
  const std::int64_t rest = count % kBlock, last = first + count - rest;
  for (std::int64_t i = first; i < last; i += kBlock) {
    adamw_block(weights + i, gradients + i, moved(average, i), moved(square_average, i), i, step,
                rounding);
  }
  if (rest == 0) return;
  LastBlock w(weights + last, rest);
  LastBlock g(gradients + last, rest);
  const auto m = moved(average, last), v = moved(square_average, last);
  LastBlock mean(m.values, rest), square(v.values, rest);
  adamw_block<Weight, State>(w.data(), g.data(), {mean.data(), m.scales}, {square.data(), v.scales},
                             last, step, rounding);
}

template <typename Weight, typename State>
void sgd(Weight* weights, const Weight* gradients, MomentData<State> momentum, std::int64_t first,
         std::int64_t count, const SgdStep& step, const Rounding& rounding) {
  const std::int64_t rest = count % kBlock, last = first + count - rest;
  for (std::int64_t i = first; i < last; i += kBlock) {
    sgd_block(weights + i, gradients + i, moved(momentum, i), i, step, rounding);
  }
  if (rest == 0) return;
  LastBlock w(weights + last, rest);
  LastBlock g(gradients + last, rest);
  const auto m = moved(momentum, last);
  LastBlock mean(m.values, rest);
  sgd_block<Weight, State>(w.data(), g.data(), {mean.data(), m.scales}, last, step, rounding);
}

}  // namespace

template <typename Weight, typename State>
const StepKernels<Weight, State>& kernels() {
  static constexpr StepKernels<Weight, State> all{&adamw<Weight, State>, &sgd<Weight, State>};
  return all;
}

#define PAREPROP_INSTANTIATE(Weight)                            \
  template const StepKernels<Weight, float>& kernels();         \
  template const StepKernels<Weight, c10::BFloat16>& kernels(); \
  template const StepKernels<Weight, std::uint8_t>& kernels();
PAREPROP_INSTANTIATE(float)
PAREPROP_INSTANTIATE(c10::BFloat16)
#undef PAREPROP_INSTANTIATE

}  // namespace pareprop::optim::CPU_CAPABILITY
