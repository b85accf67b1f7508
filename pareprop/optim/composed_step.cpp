#include "pareprop/optim/composed_step.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace pareprop::optim {
namespace {

constexpr std::int64_t kAllButSign = 0x7fffffff;

at::Tensor as_bits(const at::Tensor& values) { return values.view(at::kInt); }

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
  const at::Tensor scales = blocks.abs().amax(1);
  moment.scales.copy_(scales);
  const at::Tensor factors = at::where(scales.lt(kSmallestScale), at::zeros_like(scales),
                                       at::full_like(scales, Map::kTop).div(scales));
  const at::Tensor parts = blocks.abs().mul(factors.unsqueeze(1)).add(Map::kNear);
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

at::Tensor random_bits(std::uint64_t key, std::int64_t count, c10::Device device) {
  constexpr std::int64_t kOfNumber = 4;
  const auto word = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  // A shift of a negative number brings in ones.
  const auto xor_shifted = [](const at::Tensor& x, int by) {
    const std::int64_t there = (std::int64_t{1} << (64 - by)) - 1;
    return x.bitwise_xor(x.bitwise_right_shift(by).bitwise_and(there));
  };
  at::Tensor x = at::arange(1, (count + kOfNumber - 1) / kOfNumber + 1,
                            at::TensorOptions(at::kLong).device(device));
  x = x.mul(word(Rounding::kStep)).add(word(key));
  x = xor_shifted(x, 30).mul(word(Rounding::kFirstFactor));
  x = xor_shifted(x, 27).mul(word(Rounding::kSecondFactor));
  x = xor_shifted(x, 31);
  return x.view(at::kShort).narrow(0, 0, count).to(at::kInt).bitwise_and(0xffff);
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

void write_weights(const at::Tensor& values, const Rounding& rounding, const at::Tensor& weights) {
  if (weights.scalar_type() != at::kBFloat16) {
    weights.copy_(values);
    return;
  }
  const at::Tensor random = random_bits(rounding.weight_key, weights.numel(), weights.device());
  weights.copy_(rounded_to_bf16(values.reshape({-1}), random).view(weights.sizes()));
}

void composed_adamw(const at::Tensor& weights, const at::Tensor& gradients, const Moment& average,
                    const Moment& square_average, const AdamWStep& step, const Rounding& rounding) {
  const at::Tensor gradient = gradients.to(at::kFloat);
  const at::Tensor mean =
      read_moment(average, true, step.average_factor).add(gradient.mul(step.average_share));
  const at::Tensor square = read_moment(square_average, false, step.square_factor)
                                .add(gradient.mul(gradient).mul(step.square_share));
  const at::Tensor size = square.sqrt().mul(step.square_correction).add(step.eps);
  write_weights(weights.to(at::kFloat).mul(step.weight_factor).sub(mean.div(size).mul(step.rate)),
                rounding, weights);
  at::Tensor random;
  if (average.kind != StateKind::fp32) {
    random = random_bits(rounding.state_key, weights.numel(), weights.device());
  }
  write_moment(mean, random, true, average);
  write_moment(square, random, false, square_average);
}

void composed_sgd(const at::Tensor& weights, const at::Tensor& gradients, const Moment& momentum,
                  const SgdStep& step, const Rounding& rounding) {
  const at::ScalarType type = weights.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor before = weights.to(type);
  at::Tensor mean = gradients.to(type).mul(step.gradient_factor).add(before.mul(step.weight_decay));
  if (momentum.values.defined()) {
    mean = read_moment(momentum, true, step.momentum).add(mean);
  }
  write_weights(before.sub(mean.mul(step.rate)), rounding, weights);
  if (!momentum.values.defined()) return;
  at::Tensor random;
  if (momentum.kind != StateKind::fp32) {
    random = random_bits(rounding.state_key, weights.numel(), weights.device());
  }
  write_moment(mean, random, true, momentum);
}

}  // namespace pareprop::optim
