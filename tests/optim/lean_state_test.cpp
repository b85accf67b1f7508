#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "pareprop/data/counter_random.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/optim/adamw.h"
#include "pareprop/optim/composed_step.h"
#include "pareprop/optim/make_optimizer.h"
#include "tests/io/temporary_folder.h"
#include "tests/optim/random_parameters.h"

namespace pareprop::optim {
namespace {

using io::testing::message_of;
using testing::copies_of;
using testing::expect_equal;
using testing::random_gradients;
using testing::random_parameters;

struct LeanCase {
  const char* name;
  StateKind state;
  at::ScalarType weights;
  OptimizerKind kind = OptimizerKind::adamw;

  std::unique_ptr<Optimizer> make(const io::NamedTensors& parameters) const {
    return make_optimizer(parameters, {.kind = kind, .state = state, .seed = 7});
  }
  io::NamedTensors parameters(std::uint64_t seed) const { return random_parameters(seed, weights); }
};

std::string case_name(const ::testing::TestParamInfo<LeanCase>& info) { return info.param.name; }

class LeanState : public ::testing::TestWithParam<LeanCase> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds, LeanState,
    ::testing::Values(LeanCase{"AdamwBf16", StateKind::bf16, at::kFloat},
                      LeanCase{"Adamw8bit", StateKind::eight_bit, at::kFloat},
                      LeanCase{"AdamwFp32OfBf16Weights", StateKind::fp32, at::kBFloat16},
                      LeanCase{"AdamwBf16OfBf16Weights", StateKind::bf16, at::kBFloat16},
                      LeanCase{"Adamw8bitOfBf16Weights", StateKind::eight_bit, at::kBFloat16},
                      LeanCase{"Sgd", StateKind::fp32, at::kFloat, OptimizerKind::sgd},
                      LeanCase{"SgdBf16", StateKind::bf16, at::kFloat, OptimizerKind::sgd},
                      LeanCase{"Sgd8bit", StateKind::eight_bit, at::kFloat, OptimizerKind::sgd},
                      LeanCase{"Sgd8bitOfBf16Weights", StateKind::eight_bit, at::kBFloat16,
                               OptimizerKind::sgd},
                      LeanCase{"Adafactor", StateKind::fp32, at::kFloat, OptimizerKind::adafactor},
                      LeanCase{"AdafactorOfBf16Weights", StateKind::fp32, at::kBFloat16,
                               OptimizerKind::adafactor}),
    case_name);

void run(Optimizer& optimizer, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t step = begin; step < end; ++step) {
    random_gradients(optimizer.parameters(), step);
    optimizer.step(0.01, 0.3);
  }
}

// Whose sums and roots are torch's may be off by a few last bits; rounded to bf16, by one.
void expect_close(const io::NamedTensors& found, const io::NamedTensors& expected, double by) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool half = found[i].second.scalar_type() == at::kBFloat16;
    EXPECT_TRUE(found[i].second.allclose(expected[i].second, half ? 0x1p-7 : by, 1e-8))
        << expected[i].first;
  }
}

TEST_P(LeanState, KernelsGiveTheBitsOfTheComposition) {
  const auto by_kernels = GetParam().parameters(1), composed = GetParam().parameters(1);
  const auto kernels = GetParam().make(by_kernels), composition = GetParam().make(composed);
  run(*kernels, 0, 4);
  {
    const DevicePathScope device_path;
    run(*composition, 0, 4);
  }
  if (GetParam().kind == OptimizerKind::adafactor) {
    expect_close(kernels->state(), composition->state(), 1e-5);
    expect_close(by_kernels, composed, 1e-5);
    return;
  }
  expect_equal(kernels->state(), composition->state());
  if (GetParam().weights == at::kBFloat16) return expect_equal(by_kernels, composed);
  expect_close(by_kernels, composed, 1e-6);
}

// The composition takes it in two parts.
TEST_P(LeanState, KernelsGiveTheBitsOfTheCompositionOfALargeParameter) {
  if (GetParam().kind == OptimizerKind::adafactor) return;
  const auto large = [] {
    at::manual_seed(3);
    return io::NamedTensors{
        {"weight", at::randn({kAtATime + 300}).to(GetParam().weights).set_requires_grad(true)}};
  };
  const auto by_kernels = large(), composed = large();
  const auto kernels = GetParam().make(by_kernels), composition = GetParam().make(composed);
  run(*kernels, 0, 1);
  {
    const DevicePathScope device_path;
    run(*composition, 0, 1);
  }
  expect_equal(kernels->state(), composition->state());
  if (GetParam().weights == at::kBFloat16) return expect_equal(by_kernels, composed);
  expect_close(by_kernels, composed, 1e-6);
}

TEST_P(LeanState, BitsDoNotDependOnThreadsOrOnHowAStepIsSplit) {
  const auto expected = GetParam().parameters(2);
  run(*GetParam().make(expected), 0, 3);
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    const auto parameters = GetParam().parameters(2);
    const auto optimizer = GetParam().make(parameters);
    for (std::uint64_t step = 0; step < 3; ++step) {
      random_gradients(parameters, step);
      optimizer->update({3, 1}, 0.01, 0.3);
      optimizer->update({}, 0.01, 0.3);
      optimizer->update({0, 2}, 0.01, 0.3);
    }
    expect_equal(parameters, expected);
  }
  omp_set_num_threads(before);
}

TEST_P(LeanState, ContinuesFromASavedStateWithTheSameBits) {
  const io::testing::TemporaryFolder folder;
  const auto one = GetParam().parameters(3);
  const auto through = GetParam().make(one);
  run(*through, 0, 3);
  io::write_safetensors(folder / "state", through->state());
  const auto two = copies_of(one);
  const auto resumed = GetParam().make(two);
  resumed->load_state(io::SafetensorsFile(folder / "state"));
  run(*through, 3, 6);
  run(*resumed, 3, 6);
  expect_equal(one, two);
  expect_equal(through->state(), resumed->state());
}

// Gradients of a weight have a mean and noise, as in training. The reference has float64
// throughout.
TEST_P(LeanState, StaysCloseToFloat64) {
  const LeanCase& c = GetParam();
  const auto lean = c.parameters(4), exact = random_parameters(4, at::kDouble);
  const LeanCase reference{"reference", StateKind::fp32, at::kDouble, c.kind};
  const auto lean_optimizer = c.make(lean), exact_optimizer = reference.make(exact);
  for (std::size_t i = 0; i < lean.size(); ++i) {
    at::NoGradGuard no_grad;
    exact[i].second.copy_(lean[i].second);
  }
  const auto first = copies_of(exact);
  constexpr int kSteps = 100;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    random_gradients(lean, step);
    for (std::size_t i = 0; i < lean.size(); ++i) {
      const at::Tensor gradient =
          lean[i].second.grad().add(first[i].second.detach(), 0.5).to(lean[i].second.dtype());
      lean[i].second.mutable_grad() = gradient;
      exact[i].second.mutable_grad() = gradient.to(at::kDouble);
    }
    lean_optimizer->step(0.01);
    exact_optimizer->step(0.01);
  }
  at::NoGradGuard no_grad;
  // How far the mean weight went, and how far it is from where it should be. Of the largest matrix.
  const at::Tensor way = exact.back().second - first.back().second;
  const at::Tensor miss = lean.back().second.to(at::kDouble) - exact.back().second;
  const double relative = (miss.norm() / way.norm()).item<double>();
  EXPECT_LT(relative, c.weights == at::kBFloat16 ? 0.06 : 0.03);
  // Rounding is as often up as down.
  const double count = static_cast<double>(way.numel());
  EXPECT_LT(std::abs(miss.mean().item<double>()),
            5.0 * miss.std().item<double>() / std::sqrt(count) + 1e-6);
}

TEST(LeanMoment, RandomBitsAreThoseOfTheCounterBasedGenerator) {
  constexpr std::uint64_t kKey = 0xfedcba9876543210;
  const at::Tensor bits = random_bits(kKey, 1001, at::kCPU);
  for (std::int64_t i = 0; i < bits.numel(); ++i) {
    const std::uint64_t number =
        data::mix64(kKey + static_cast<std::uint64_t>(i / 4 + 1) * 0x9e3779b97f4a7c15);
    EXPECT_EQ(static_cast<std::uint64_t>(bits[i].item<std::int64_t>()),
              number >> (16 * (i % 4)) & 0xffff);
  }
}

Moment moment_of(std::int64_t values, StateKind kind) {
  return zero_moment(at::zeros({values}), kind);
}

// Of codes beside a value of eight bits, as Note [Eight bits] says; all in blocks of one scale.
at::Tensor largest_gap(const at::Tensor& values, bool is_signed) {
  const double near = is_signed ? SignedMap::kNear : UnsignedMap::kNear;
  const at::Tensor flat = at::constant_pad_nd(values, {0, -values.numel() & (kBlock - 1)});
  const at::Tensor scales = flat.view({-1, kBlock}).abs().amax(1);
  return values.abs()
      .add(scales.mul(near).repeat_interleave(kBlock).narrow(0, 0, values.numel()))
      .mul(1.0001 / (1 << SignedMap::kMantissa));
}

TEST(LeanMoment, ACodeIsOffByLessThanTheGapBetweenTwo) {
  const at::Generator generator = at::detail::createCPUGenerator(5);
  const at::Tensor values =
      at::randn({5000}, generator) * at::randn({5000}, generator).mul(4).exp();
  const at::Tensor bits = random_bits(1, values.numel(), at::kCPU);
  for (const bool is_signed : {true, false}) {
    const at::Tensor exact = is_signed ? values : values.square();
    const Moment moment = moment_of(values.numel(), StateKind::eight_bit);
    write_moment(exact, bits, is_signed, moment);
    const at::Tensor miss = (read_moment(moment, is_signed) - exact).abs();
    const at::Tensor most = largest_gap(exact, is_signed);
    EXPECT_TRUE(miss.le(most).all().item<bool>()) << (miss / most).max();
    // The largest of a block is exact but for rounding.
    const at::Tensor scale = moment.scales.repeat_interleave(kBlock).narrow(0, 0, exact.numel());
    EXPECT_TRUE(scale.ge(exact.abs()).all().item<bool>());
    const at::Tensor largest = exact.abs().eq(scale);
    EXPECT_EQ(largest.sum().item<std::int64_t>(), blocks_of(exact.numel()));
    EXPECT_TRUE((miss / scale).masked_select(largest).le(1e-6).all().item<bool>());
  }
}

TEST(LeanMoment, RoundingAtRandomHasTheRightMean) {
  constexpr std::int64_t kDraws = 4000;
  const at::Generator generator = at::detail::createCPUGenerator(6);
  const at::Tensor values = at::randn({kBlock}, generator) * at::rand({kBlock}, generator).pow(6);
  const at::Tensor bits = random_bits(9, kDraws * kBlock, at::kCPU);
  for (const StateKind kind : {StateKind::bf16, StateKind::eight_bit}) {
    for (const bool is_signed : {true, false}) {
      const at::Tensor exact = is_signed ? values : values.square().add(1e-5);
      const Moment moment = moment_of(kDraws * kBlock, kind);
      write_moment(exact.repeat({kDraws}), bits, is_signed, moment);
      const at::Tensor read = read_moment(moment, is_signed).view({kDraws, kBlock}).to(at::kDouble);
      const at::Tensor miss = read.mean(0) - exact;
      // A value so close to a code that it was never rounded to the next has no deviation.
      const at::Tensor most = 5.0 / std::sqrt(static_cast<double>(kDraws)) * read.std(0) +
                              10.0 / kDraws * largest_gap(exact, is_signed);
      EXPECT_TRUE(miss.abs().le(most).all().item<bool>())
          << name(kind) << (is_signed ? " signed " : " ") << (miss.abs() / most).max();
      EXPECT_GT(read.std(0).max().item<double>(), 0.0);
    }
  }
}

// Else a step whose gradient is 0 would divide what is left of the first moment by eps.
TEST(LeanMoment, ASecondMomentNeverBecomesZeroUnlessAllOfItsBlockAre) {
  at::Tensor values = at::full({2 * kBlock}, 1e-30);
  values[0] = 1.0;
  values.narrow(0, kBlock, kBlock).zero_();
  const Moment moment = moment_of(2 * kBlock, StateKind::eight_bit);
  write_moment(values, random_bits(1, 2 * kBlock, at::kCPU), false, moment);
  const at::Tensor read = read_moment(moment, false);
  EXPECT_EQ(read.gt(0).sum().item<std::int64_t>(), kBlock);
  EXPECT_LT(read[1].item<float>(), 1e-6F);
}

TEST(LeanMoment, ASparseGradientTakesNoLongStep) {
  const io::NamedTensors parameters{{"table.weight", at::zeros({64, 128}).requires_grad_(true)}};
  AdamW adamw(parameters, {.weight_decay = 0.0, .state = StateKind::eight_bit});
  const at::Tensor& table = parameters[0].second;
  at::NoGradGuard no_grad;
  for (std::int64_t step = 0; step < 40; ++step) {
    at::Tensor gradient = at::zeros({64, 128});
    gradient[step % 64].fill_(step == 0 ? 100.0 : 1e-4);  // one row a step, one of them a spike
    table.mutable_grad() = gradient;
    const at::Tensor before = table.clone();
    adamw.step(0.001);
    EXPECT_LT((table - before).abs().max().item<double>(), 0.04) << step;
  }
}

TEST(LeanMoment, WhatIsNotANumberStaysSo) {
  for (const StateKind kind : {StateKind::bf16, StateKind::eight_bit}) {
    const io::NamedTensors parameters{
        {"fc.weight", at::zeros({64, 128}, at::kBFloat16).requires_grad_(true)}};
    AdamW adamw(parameters, {.state = kind});
    random_gradients(parameters, 1);
    parameters[0].second.mutable_grad().view({-1})[5] = std::numeric_limits<float>::quiet_NaN();
    adamw.step(0.01);
    EXPECT_TRUE(parameters[0].second.view({-1})[5].isnan().item<bool>());
    random_gradients(parameters, 2);
    adamw.step(0.01);
    EXPECT_TRUE(parameters[0].second.view({-1})[5].isnan().item<bool>());
  }
}

TEST(LeanMoment, SharesOfMemory) {
  memory::install_caching_allocator();
  const auto bytes = [](const io::NamedTensors& parameters, StateKind kind) {
    const auto counted =
        parameters[0].second.is_meta() ? memory::Counted::meta : memory::Counted::cpu;
    const auto before = memory::usage(counted).live_of(memory::Tag::optimizer);
    const AdamW adamw(parameters, {.state = kind});
    return static_cast<double>(memory::usage(counted).live_of(memory::Tag::optimizer) - before);
  };
  const auto model = models::make_model("vit_tiny");
  const auto parameters = models::trained_parameters(*model);
  const double fp32 = bytes(parameters, StateKind::fp32);
  EXPECT_LE(bytes(parameters, StateKind::eight_bit) / fp32, 0.27);
  // A count of steps for each parameter comes on top of half.
  const double counts = 8.0 * static_cast<double>(parameters.size());
  EXPECT_LE((bytes(parameters, StateKind::bf16) - counts) / fp32, 0.5);
}

TEST(LeanMoment, StateOfAnotherKindIsRefusedByName) {
  const io::testing::TemporaryFolder folder;
  const auto parameters = random_parameters(8);
  const std::vector<std::pair<std::string, std::function<std::unique_ptr<Optimizer>()>>> all{
      {"AdamW with state in fp32", [&] { return std::make_unique<AdamW>(parameters); }},
      {"AdamW with state in bf16",
       [&] { return std::make_unique<AdamW>(parameters, AdamWOptions{.state = StateKind::bf16}); }},
      {"AdamW with state in 8bit",
       [&] {
         return std::make_unique<AdamW>(parameters, AdamWOptions{.state = StateKind::eight_bit});
       }},
      {"SGD with state in fp32", [&] { return std::make_unique<Sgd>(parameters); }},
      {"Adafactor", [&] { return std::make_unique<Adafactor>(parameters); }},
      {"SGD without momentum",
       [&] { return std::make_unique<Sgd>(parameters, SgdOptions{.momentum = 0.0}); }},
  };
  for (const auto& [saved, make_saved] : all) {
    io::write_safetensors(folder / "state", make_saved()->state());
    for (const auto& [asked, make] : all) {
      const auto load = [&] { make()->load_state(io::SafetensorsFile(folder / "state")); };
      if (saved == asked) {
        load();
        continue;
      }
      const std::string message = message_of<std::invalid_argument>(load);
      EXPECT_NE(message.find("is the state of " + saved + ", expected that of " + asked),
                std::string::npos)
          << message;
    }
  }
}

TEST(LeanMoment, Float64IsNotForLeanState) {
  const auto message = message_of<std::invalid_argument>(
      [] { AdamW(random_parameters(1, at::kDouble), {.state = StateKind::bf16}); });
  EXPECT_NE(message.find("is Double, expected Float or BFloat16 for state in bf16"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace pareprop::optim
