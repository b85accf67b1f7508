#include "pareprop/reversible/deferred_checks.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "pareprop/ops/compare.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/reversible/stack.h"
#include "tests/ops/host_reads.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

at::Tensor total(const std::pair<at::Tensor, at::Tensor>& y) {
  return y.first.sum().add(y.second.mul(y.second).sum());
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeferredChecks, GiveNumbersOfAllTypesToTheirJudgesInOrder) {
  for (const bool device_path : {false, true}) {
    const DevicePathScope scope(device_path);
    DeferredChecks checks;
    std::vector<std::vector<double>> seen;
    const auto judge = [&](c10::ArrayRef<double> values) {
      seen.push_back(values.vec());
      return true;
    };
    checks.add({at::full({}, 1.5F), at::arange(3)}, judge);
    checks.add({}, judge);
    checks.add({at::full({2}, -4.0, at::kDouble), at::full({}, 7, at::kInt)}, judge);
    checks.run();
    EXPECT_THAT(seen,
                ElementsAre(ElementsAre(1.5, 0, 1, 2), ElementsAre(), ElementsAre(-4, -4, 7)));
    checks.run();
    EXPECT_EQ(seen.size(), 3U) << "they are forgotten";
  }
}

TEST(DeferredChecks, StopWhereAJudgeSaysSoOrThrows) {
  DeferredChecks checks;
  int judged = 0;
  const auto stops = [&](c10::ArrayRef<double>) { return ++judged < 2; };
  for (int i = 0; i < 4; ++i) checks.add({}, stops);
  checks.run();
  EXPECT_EQ(judged, 2);
  checks.add({}, [](c10::ArrayRef<double>) -> bool { throw std::runtime_error("wrong"); });
  checks.add({}, stops);
  EXPECT_THROW(checks.run(), std::runtime_error);
  checks.run();
  EXPECT_EQ(judged, 2);
}

struct DeviceCall {
  double wrong = 0.0;  // what branch G of block 1 adds to its factor
  StackOptions options = {.precision = Precision::fp64};

  Stack stack(Mode mode) {
    auto blocks = testing::test_blocks(3, {.dropout = 0.2, .drop_path = 0.1});
    blocks[1].g =
        Branch([this](const at::Tensor& x, const BranchCall&) { return x.mul(0.1 + wrong); }, {});
    return Stack(std::move(blocks), testing::without_tail(mode, 3), options);
  }
};

constexpr double kTooLarge = 1e9;

// On an accelerator a branch's values are not read in the forward pass: the error comes with the
// backward pass, with the same words as on the CPU.
TEST(DeferredChecks, OfAStackComeAtTheEndOfItsBackwardPass) {
  const DevicePathScope scope;
  const at::Tensor x = testing::small_input();
  DeviceCall call{.options = {.precision = Precision::fp64, .arithmetic = Arithmetic::exact}};
  for (const Mode mode : {Mode::stored, Mode::reprop, Mode::pareprop}) {
    Stack stack = call.stack(mode);
    call.wrong = kTooLarge;
    const at::Tensor loss = total(stack->forward(x, x));
    EXPECT_THAT(error_of([&] { loss.backward(); }),
                AllOf(HasSubstr("block 1, branch G"), HasSubstr("do not fit exact streams")))
        << name(mode);
    call.wrong = 0.0;
    EXPECT_EQ(error_of([&] { total(stack->forward(x, x)).backward(); }), "no error") << name(mode);
    const at::Tensor huge = x.detach().add(kTooLarge).requires_grad_(true);
    EXPECT_THAT(error_of([&] { total(stack->forward(huge, huge)).backward(); }),
                HasSubstr("input x1"));
    c10::AutoGradMode no_graph(false);
    EXPECT_THAT(error_of([&] { stack->forward(huge, huge); }), HasSubstr("input x1"))
        << "nobody else would look";
  }
}

TEST(DeferredChecks, NameTheBranchThatDoesNotComputeTheSameAgain) {
  const DevicePathScope scope;
  const at::Tensor x = testing::small_input();
  for (const Arithmetic arithmetic : {Arithmetic::floating, Arithmetic::exact}) {
    DeviceCall call{.options = {.precision = Precision::fp64, .arithmetic = arithmetic}};
    for (const Mode mode : {Mode::reprop, Mode::pareprop}) {
      Stack stack = call.stack(mode);
      call.wrong = 0.0;
      const at::Tensor loss = total(stack->forward(x, x));
      call.wrong = 0.01;
      EXPECT_THAT(error_of([&] { loss.backward(); }),
                  AllOf(HasSubstr("block 1, branch G"), HasSubstr("recomputation differs")));
    }
  }
}

// Who runs the step reads once for all its stacks, after its backward pass.
TEST(DeferredChecks, OfAPassWaitForWhoRunsTheStep) {
  const DevicePathScope scope;
  const at::Tensor x = testing::small_input();
  DeviceCall call{.options = {.precision = Precision::fp64, .arithmetic = Arithmetic::exact}};
  for (const Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    Stack below = call.stack(mode), above = call.stack(mode);
    const auto checks = std::make_shared<DeferredChecks>();
    const auto step = [&] {
      const CallOptions options{.pass = std::make_shared<Pass>(3, 4, checks)};
      const auto [y1, y2] = below->forward(x, x, options);
      total(above->forward(y1, y2, options)).backward();
    };
    call.wrong = 0.0;
    {
      const testing::HostReads reads;
      step();
      EXPECT_EQ(reads.count(), 0) << name(mode);
    }
    checks->run();
    EXPECT_EQ(below->drift().worst, 0.0);
    EXPECT_EQ(below->drift().worst_branch >= 0, mode != Mode::stored);
    call.wrong = kTooLarge;
    step();
    EXPECT_THAT(error_of([&] { checks->run(); }), HasSubstr("block 1, branch G"));
  }
}

TEST(DeferredChecks, OnTheCpuErrorsComeWhereTheyHappen) {
  const at::Tensor x = testing::small_input();
  DeviceCall call{.wrong = kTooLarge,
                  .options = {.precision = Precision::fp64, .arithmetic = Arithmetic::exact}};
  Stack stack = call.stack(Mode::reprop);
  const auto checks = std::make_shared<DeferredChecks>();
  EXPECT_THAT(
      error_of([&] { stack->forward(x, x, {.pass = std::make_shared<Pass>(3, 4, checks)}); }),
      HasSubstr("block 1, branch G"));
}

// Exact streams give every mode the bits of stored training, on the device path too. Torch's sums
// depend on the number of threads, and lanes divide them.
TEST(DeferredChecks, ExactGradientsHaveTheBitsOfStoredTrainingOnTheDevicePath) {
  const DevicePathScope scope;
  const at::Tensor x = testing::small_input();
  DeviceCall call{.options = {.precision = Precision::fp64, .arithmetic = Arithmetic::exact}};
  std::vector<at::Tensor> expected;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    Stack stack = call.stack(mode);
    total(stack->forward(x, x, {.pass = std::make_shared<Pass>(3, 4)})).backward();
    std::vector<at::Tensor> gradients{x.grad()};
    x.mutable_grad().reset();
    for (const at::Tensor& p : stack->parameters()) gradients.push_back(p.grad());
    if (expected.empty()) expected = gradients;
    EXPECT_TRUE(bit_identical(expected, gradients)) << name(mode);
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace pareprop
