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
  const int cases = testing::case_count(50);
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
  const int cases = testing::case_count(1000);
  std::cout << "seed " << seed << ", " << cases << " cases\n";
  at::set_num_threads(1);
  std::map<Precision, int> same_bits;
  int overlapped = 0;
  for (int i = 0; i < cases; ++i) {
    RandomStack c(seed + i, i % 8 == 0 ? 13 : 4);
    if (i % 7 == 0) c.plan.lookahead = 5;
    if (i % 2 == 0) c.plan.overlap = true;  // without it there is one stream, and no race
    if (i % 5 == 0) c = c.coupled(i % 2 == 0 ? Coupling::residual : Coupling::sequential);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    StackProblem device(c, nullptr, SimulatedDevice::device(static_cast<int>(i % 2)));
    const StackPlan stored = plan_of(Mode::stored, c.depth);
    const bool exact = is_reversible(c.coupling) && c.options.arithmetic == Arithmetic::exact;
    const auto got = on_cpu(device.gradients(c.plan, c.options, false));
    overlapped += c.plan.overlap ? 1 : 0;

    const auto precision = c.options.precision;
    StackProblem cpu(c, nullptr);
    const auto expected = [&] {
      const DevicePathScope compositions;  // the same operators as on the device
      return cpu.gradients(stored, c.options, /*reference=*/!exact);
    }();
    ASSERT_LE(max_relative_error(expected, got), precision == Precision::fp64   ? 1e-10
                                                 : precision == Precision::fp32 ? 1e-5
                                                                                : 2e-2);
    if (!exact) continue;
    ASSERT_TRUE(bit_identical(expected, got));
    ++same_bits[precision];
  }
  SimulatedDevice::finish();
  std::cout << overlapped << " overlapped; exact, with the bits of the CPU:";
  for (const auto& [precision, count] : same_bits) {
    std::cout << ' ' << name(precision) << ' ' << count;
    // A third of the cases has exact streams, and a third of these has this precision.
    EXPECT_GE(count, cases / 12);
  }
  std::cout << "\n";
  EXPECT_EQ(same_bits.size(), 3U);
  EXPECT_GE(overlapped, cases / 2);
}

}  // namespace
}  // namespace pareprop
