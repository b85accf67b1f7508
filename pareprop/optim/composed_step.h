#pragma once

#include <ATen/core/Tensor.h>

#include "pareprop/optim/moment.h"

namespace pareprop::optim {

// What step_kernels.h does, composed of torch's operators: for other devices than the CPU, and what
// tests compare the kernels with. On the CPU the bits are the same, but for those of weights:
// torch's square root may be off by the last.

// Times `factor`, in the shape of the parameter: Float (or Double, if it is kept as such). A second
// moment is not signed.
at::Tensor read_moment(const Moment& moment, bool is_signed, double factor = 1.0);

// `random` is what random_bits() gives.
void write_moment(const at::Tensor& values, const at::Tensor& random, bool is_signed,
                  const Moment& moment);

// Of `count` elements from `first` on, a multiple of four: Int, 16 bits each. Note [Rounding at
// random]
at::Tensor random_bits(std::uint64_t key, std::int64_t count, c10::Device device,
                       std::int64_t first = 0);

// One step of all elements. However many they are, temporaries take no more than those of
// kAtATime elements. REQUIRES: gradients are contiguous.
constexpr std::int64_t kAtATime = std::int64_t{1} << 20;
void composed_adamw(const at::Tensor& weights, const at::Tensor& gradients, const Moment& average,
                    const Moment& square_average, const AdamWStep& step, const Rounding& rounding);
// A momentum without values: there is none.
void composed_sgd(const at::Tensor& weights, const at::Tensor& gradients, const Moment& momentum,
                  const SgdStep& step, const Rounding& rounding);

// Gives the weights these values, rounded at random where they are bf16; `first` is the place of
// the first in the parameter.
void write_weights(const at::Tensor& values, const Rounding& rounding, const at::Tensor& weights,
                   std::int64_t first = 0);

}  // namespace pareprop::optim
