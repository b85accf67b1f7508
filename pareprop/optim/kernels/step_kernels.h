#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "pareprop/optim/kernels/eight_bits.h"

namespace pareprop::optim {

// The numbers of one step of one parameter. Gradients stand for themselves times their factor.
struct AdamWStep {
  float weight_factor;      // 1 - learning rate * weight decay
  float average_factor;     // beta1
  float average_share;      // (1 - beta1) * factor of gradients
  float square_factor;      // beta2
  float square_share;       // (1 - beta2) * factor of gradients, squared
  float rate;               // learning rate / (1 - beta1^step)
  float square_correction;  // 1 / sqrt(1 - beta2^step)
  float eps;
};

struct SgdStep {
  double gradient_factor;
  double weight_decay;
  double momentum;
  double rate;
};

// Random bits of one step of one parameter. Note [Rounding at random]
// A step of a parameter draws twice, for its state and, if they are bf16, for its weights. Element
// i takes 16 bits: of number i / 4 of the counter-based generator of data/counter_random.h with
// that key, its bits from 16 * (i % 4) on. The key is a hash of seed, name of the parameter and
// step: so the bits depend on the element, and not on who computes it. Both moments take the same.
struct Rounding {
  std::uint64_t state_key = 0, weight_key = 0;

  // Number n is mixed of key + (n + 1) * kStep, with these factors.
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
  static constexpr std::uint64_t kFirstFactor = 0xbf58476d1ce4e5b9;
  static constexpr std::uint64_t kSecondFactor = 0x94d049bb133111eb;
};

// A moment of all elements of a parameter; null: there is none. Only eight bits have scales, one a
// block.
template <typename State>
struct MomentData {
  State* values = nullptr;
  float* scales = nullptr;
};

// Elements [first, first + count) of a parameter, for one thread: state is loaded, a step is made,
// weights and state are stored, in one pass over memory. `first` is a multiple of kBlock. All
// instruction sets give the same bits. Compiled once for each; step_kernels() picks the one of
// kernel_capability().
//
// Weight is float or bfloat16, and so are gradients; State is float, bfloat16, or uint8_t: Note
// [Eight bits].
template <typename Weight, typename State>
struct StepKernels {
  void (*adamw)(Weight* weights, const Weight* gradients, MomentData<State> average,
                MomentData<State> square_average, std::int64_t first, std::int64_t count,
                const AdamWStep& step, const Rounding& rounding);
  void (*sgd)(Weight* weights, const Weight* gradients, MomentData<State> momentum,
              std::int64_t first, std::int64_t count, const SgdStep& step,
              const Rounding& rounding);
};

template <typename Weight, typename State>
const StepKernels<Weight, State>& step_kernels();

}  // namespace pareprop::optim
