#include "pareprop/optim/composed_step.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace pareprop::optim {
namespace {

constexpr std::int64_t kAllButSign = 0x7fffffff;
static_assert(kAtATime % kBlock == 0);

at::Tensor as_bits(const at::Tensor& values) { return values.view(at::kInt); }

// at::abs has no meta kernel in C++.
at::Tensor magnitudes(const at::Tensor& values) {
  return as_bits(values).bitwise_and(kAllButSign).view(at::kFloat);
}

at::Tensor in_blocks(const at::Tensor& flat) {
  return at::constant_pad_nd(flat, {0, blocks_of(flat.numel()) * kBlock - flat.numel()})
      .view({-1, kBlock});
}

at::Tensor rounded_to_bf16(const at::Tensor& values, const at::Tensor& random) {
  const at::Tensor bits = as_bits(values);
  const at::Tensor magnitude = bits.bitwise_and(kAllButSign).add(random).bitwise_right_shift(16);
  const at::Tensor sign = bits.lt(0).to(at::kInt).bitwise_left_shift(15);
  const at::Tensor rounded = magnitude.bitwise_or(sign).to(at::kShort).view(at::kBFloat16);
  return at::where(values.isnan(), values.to(at::kBFloat16), rounded);
}

template <typename Map>
void write_codes(const at::Tensor& values, const at::Tensor& random, const Moment& moment) {
  const at::Tensor blocks = in_blocks(values), bits = in_blocks(random);
  const at::Tensor magnitude = magnitudes(blocks), scales = magnitude.amax(1);
  moment.scales.copy_(scales);
  const at::Tensor factors = at::where(scales.lt(kSmallestScale), at::zeros_like(scales),
                                       at::full_like(scales, Map::kTop).div(scales));
  const at::Tensor parts = magnitude.mul_(factors.unsqueeze(1)).add_(Map::kNear);
  at::Tensor codes = as_bits(parts)
                         .add(bits.bitwise_left_shift(Map::kDropped - 16))
                         .bitwise_right_shift(Map::kDropped)
                         .sub(static_cast<std::int64_t>(Map::kFirstBits));
  if constexpr (Map::kSigned) {
    codes = codes.bitwise_or(as_bits(blocks).lt(0).to(at::kInt).bitwise_left_shift(7));
  } else {
    codes = codes.clamp_min(1);
  }
  moment.values.view({-1}).copy_(codes.view({-1}).narrow(0, 0, values.numel()));
}

template <typename Map>
at::Tensor read_codes(const Moment& moment, double factor) {
  const at::Tensor codes = in_blocks(moment.values.view({-1})).to(at::kInt);
  const at::Tensor parts = codes.bitwise_and(static_cast<std::int64_t>(Map::kLast))
                               .add(static_cast<std::int64_t>(Map::kFirstBits))
                               .bitwise_left_shift(Map::kDropped)
                               .view(at::kFloat)
                               .sub(Map::kNear);
  at::Tensor values = parts.mul(moment.scales.div(Map::kTop).mul(factor).unsqueeze(1));
  if constexpr (Map::kSigned) values = at::where(codes.gt(SignedMap::kLast), values.neg(), values);
  return values.view({-1}).narrow(0, 0, moment.values.numel()).view(moment.values.sizes());
}

}  // namespace

at::Tensor random_bits(std::uint64_t key, std::int64_t count, c10::Device device,
                       std::int64_t first) {
  constexpr std::int64_t kOfNumber = 4;
  const auto word = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  // A shift of a negative number brings in ones.
  const auto xor_shifted = [](const at::Tensor& x, int by) {
    const std::int64_t there = (std::int64_t{1} << (64 - by)) - 1;
    return x.bitwise_xor(x.bitwise_right_shift(by).bitwise_and_(there));
  };
  const std::int64_t number = first / kOfNumber + 1;
  at::Tensor x = at::arange(number, number + (count + kOfNumber - 1) / kOfNumber,
                            at::TensorOptions(at::kLong).device(device));
  x.mul_(word(Rounding::kStep)).add_(word(key));
  x = xor_shifted(x, 30).mul_(word(Rounding::kFirstFactor));
  x = xor_shifted(x, 27).mul_(word(Rounding::kSecondFactor));
  x = xor_shifted(x, 31);
  return x.view(at::kShort).narrow(0, 0, count).to(at::kInt).bitwise_and_(0xffff);
}

at::Tensor read_moment(const Moment& moment, bool is_signed, double factor) {
  if (moment.kind == StateKind::fp32) return moment.values.mul(factor);
  if (moment.kind == StateKind::bf16) return moment.values.to(at::kFloat).mul(factor);
  return is_signed ? read_codes<SignedMap>(moment, factor)
                   : read_codes<UnsignedMap>(moment, factor);
}

void write_moment(const at::Tensor& values, const at::Tensor& random, bool is_signed,
                  const Moment& moment) {
  if (moment.kind == StateKind::fp32) {
    moment.values.copy_(values);
    return;
  }
  const at::Tensor flat = values.reshape({-1});
  if (moment.kind == StateKind::bf16) {
    moment.values.view({-1}).copy_(rounded_to_bf16(flat, random));
  } else if (is_signed) {
    write_codes<SignedMap>(flat, random, moment);
  } else {
    write_codes<UnsignedMap>(flat, random, moment);
  }
}

void write_weights(const at::Tensor& values, const Rounding& rounding, const at::Tensor& weights,
                   std::int64_t first) {
  if (weights.scalar_type() != at::kBFloat16) {
    weights.copy_(values);
    return;
  }
  const at::Tensor random =
      random_bits(rounding.weight_key, weights.numel(), weights.device(), first);
  weights.copy_(rounded_to_bf16(values.reshape({-1}), random).view(weights.sizes()));
}

namespace {

Moment part_of(const Moment& moment, std::int64_t first, std::int64_t count) {
  Moment part{.kind = moment.kind};
  if (moment.values.defined()) part.values = moment.values.view({-1}).narrow(0, first, count);
  if (moment.scales.defined()) {
    part.scales = moment.scales.narrow(0, first / kBlock, blocks_of(count));
  }
  return part;
}

// Calls `step(weights, gradients, first, count)` with flat parts of a parameter.
template <typename Step>
void in_parts(const at::Tensor& weights, const at::Tensor& gradients, Step&& step) {
  const at::Tensor in_order = weights.contiguous();
  const at::Tensor flat = in_order.view({-1}), flat_gradients = gradients.view({-1});
  for (std::int64_t first = 0; first < flat.numel(); first += kAtATime) {
    const std::int64_t count = std::min(kAtATime, flat.numel() - first);
    step(flat.narrow(0, first, count), flat_gradients.narrow(0, first, count), first, count);
  }
  if (!in_order.is_same(weights)) weights.copy_(in_order);
}

at::Tensor bits_for_state(const Moment& moment, const Rounding& rounding, const at::Tensor& weights,
                          std::int64_t first) {
  if (moment.kind == StateKind::fp32) return {};
  return random_bits(rounding.state_key, weights.numel(), weights.device(), first);
}

}  // namespace

void composed_adamw(const at::Tensor& weights, const at::Tensor& gradients, const Moment& average,
                    const Moment& square_average, const AdamWStep& step, const Rounding& rounding) {
  in_parts(weights, gradients,
           [&](const at::Tensor& part, const at::Tensor& part_gradients, std::int64_t first,
               std::int64_t count) {
             const Moment own_average = part_of(average, first, count),
                          own_square_average = part_of(square_average, first, count);
             at::Tensor gradient = part_gradients.to(at::kFloat);
             const at::Tensor mean = read_moment(own_average, true, step.average_factor)
                                         .add_(gradient.mul(step.average_share));
             const at::Tensor square = read_moment(own_square_average, false, step.square_factor)
                                           .add_(gradient.mul(gradient).mul_(step.square_share));
             gradient.reset();
             const at::Tensor size = square.sqrt().mul_(step.square_correction).add_(step.eps);
             write_weights(
                 part.to(at::kFloat).mul(step.weight_factor).sub_(mean.div(size).mul_(step.rate)),
                 rounding, part, first);
             const at::Tensor random = bits_for_state(average, rounding, part, first);
             write_moment(mean, random, true, own_average);
             write_moment(square, random, false, own_square_average);
           });
}

void composed_sgd(const at::Tensor& weights, const at::Tensor& gradients, const Moment& momentum,
                  const SgdStep& step, const Rounding& rounding) {
  const at::ScalarType type = weights.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  in_parts(
      weights, gradients,
      [&](const at::Tensor& part, const at::Tensor& part_gradients, std::int64_t first,
          std::int64_t count) {
        const Moment own = part_of(momentum, first, count);
        const at::Tensor before = part.to(type);
        at::Tensor mean =
            part_gradients.to(type).mul(step.gradient_factor).add_(before.mul(step.weight_decay));
        if (own.values.defined()) mean = read_moment(own, true, step.momentum).add_(mean);
        write_weights(before.sub(mean.mul(step.rate)), rounding, part, first);
        if (!own.values.defined()) return;
        write_moment(mean, bits_for_state(own, rounding, part, first), true, own);
      });
}

}  // namespace pareprop::optim
