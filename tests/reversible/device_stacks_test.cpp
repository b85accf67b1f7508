// Random stacks on the simulated device: no race, and the gradients of the CPU. See
// tests/random_cases.h.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>

#include "pareprop/ops/compare.h"
#include "pareprop/ops/device_path.h"
#include "tests/random_cases.h"
#include "tests/reversible/random_stack.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop {
namespace {

using testing::RandomStack;
using testing::SimulatedDevice;
using testing::StackProblem;

std::vector<at::Tensor> on_cpu(std::vector<at::Tensor> tensors) {
  for (at::Tensor& t : tensors) t = t.cpu();
  return tensors;
}

// Writes to the weights as an optimizer does, and leaves them as they are.
class Updates : public GradientTaker {
 public:
  bool takes(const at::Tensor&) const override { return true; }
  void take(const BlockGradients& block) override {
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
      block.parameters[i].mul_(1.0);
      at::Tensor& sum = sums_[block.parameters[i].unsafeGetTensorImpl()];
      sum = sum.defined() ? sum.add(block.gradients[i]) : block.gradients[i].clone();
    }
  }
  at::Tensor of(const at::Tensor& parameter) const {
    const auto found = sums_.find(parameter.unsafeGetTensorImpl());
    return found == sums_.end() ? at::Tensor() : found->second.cpu();
  }

 private:
  std::map<const c10::TensorImpl*, at::Tensor> sums_;
};

TEST(DeviceStacks, UpdatesInsideTheBackwardPassHaveNoRace) {
  const auto seed = testing::case_seed(20240617);
  const int cases = testing::case_count(200);
  at::set_num_threads(1);
  for (int i = 0; i < cases; ++i) {
    RandomStack c(seed + i, i % 8 == 0 ? 13 : 4);
    c.plan.overlap = i % 8 != 1;
    // A second forward pass would be run back with weights that have changed.
    c.two_forwards = false;
    if (i % 3 == 0) c = c.coupled(Coupling::residual);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    StackProblem device(c, nullptr, SimulatedDevice::device(static_cast<int>(i % 2)));
    const auto expected = on_cpu(device.gradients(c.plan, c.options, false));
    const auto updates = std::make_shared<Updates>();
    auto got = on_cpu(device.gradients(c.plan, c.options, false, updates));
    for (std::size_t w = 0; w < device.wanted().size(); ++w) {
      if (const at::Tensor taken = updates->of(device.wanted()[w]); taken.defined()) {
        got[w] = taken;
      }
    }
    ASSERT_TRUE(bit_identical(expected, got));
  }
  SimulatedDevice::finish();
}

TEST(DeviceStacks, RandomStacksHaveNoRaceAndTheGradientsOfTheCpu) {
  const auto seed = testing::case_seed(20240617);
  const int cases = testing::case_count(2000);
  std::cout << "seed " << seed << ", " << cases << " cases\n";
  at::set_num_threads(1);
  int bits_of_cpu = 0, bits_of_device = 0, overlapped = 0;
  for (int i = 0; i < cases; ++i) {
    RandomStack c(seed + i, i % 8 == 0 ? 13 : 4);
    if (i % 2 == 0) c.plan.overlap = true;  // without it there is one stream, and no race
    if (i % 5 == 0) c = c.coupled(i % 2 == 0 ? Coupling::residual : Coupling::sequential);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    StackProblem device(c, nullptr, SimulatedDevice::device(static_cast<int>(i % 2)));
    const StackPlan stored = plan_of(Mode::stored, c.depth);
    const bool exact = is_reversible(c.coupling) && c.options.arithmetic == Arithmetic::exact;
    const auto got = on_cpu(device.gradients(c.plan, c.options, false));
    overlapped += c.plan.overlap ? 1 : 0;

    // Torch's autocast runs other operators in bf16 on the CPU than on accelerators, as softmax:
    // there the device is its own reference. Networks of models/ do not depend on its lists
    // (tests/models/device_models_test.cpp).
    const auto precision = c.options.precision;
    const bool as_on_cpu = precision != Precision::bf16;
    StackProblem cpu(c, nullptr);
    StackProblem& other = as_on_cpu ? cpu : device;
    const auto expected = [&] {
      const DevicePathScope compositions;  // the same operators as on the device
      return on_cpu(other.gradients(stored, c.options, /*reference=*/!exact));
    }();
    ASSERT_LE(max_relative_error(expected, got), precision == Precision::fp64   ? 1e-10
                                                 : precision == Precision::fp32 ? 1e-5
                                                                                : 2e-2);
    if (!exact) continue;
    ASSERT_TRUE(bit_identical(expected, got));
    ++(as_on_cpu ? bits_of_cpu : bits_of_device);
  }
  SimulatedDevice::finish();
  std::cout << overlapped << " overlapped; exact: " << bits_of_cpu << " with the bits of the CPU, "
            << bits_of_device << " in bf16 with those of stored training\n";
  // A third of the cases has exact streams, and a third of these is in bf16.
  EXPECT_GE(bits_of_cpu, cases / 6);
  EXPECT_GE(bits_of_device, cases / 12);
  EXPECT_GE(overlapped, cases / 2);
}

}  // namespace
}  // namespace pareprop
