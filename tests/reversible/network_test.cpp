#include "pareprop/reversible/network.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pareprop/memory/meter.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using testing::test_blocks;

// Two stacks with something ordinary between them.
struct TwoStacks {
  std::vector<Stack> stacks{Stack(test_blocks(2, {})), Stack(test_blocks(3, {}, 40))};
  at::Tensor between = testing::random_tensor({8}, at::kDouble, 3).requires_grad_(true);
  StackNetwork network{stacks, weights(),
                       [this](std::int64_t samples, const auto& pass) { step(samples, pass); }};

  TwoStacks() { network.set_options({.precision = Precision::fp64}); }

  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all{between};
    for (const Stack& stack : stacks) {
      for (const at::Tensor& weight : stack->parameters()) all.push_back(weight);
    }
    return all;
  }

  void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) {
    const at::Tensor x = at::ones({samples, 4, 8}, at::kDouble);
    const auto [a, b] = stacks[0]->forward(x, x, {.pass = pass});
    const at::Tensor h = a.add(b.tanh()).mul(between);
    const auto [c, d] = stacks[1]->forward(h, h, {.pass = pass});
    if (backward) c.mul(d).sum().backward();
  }

  bool backward = true;
};

TEST(StackNetwork, GivesEachStackItsPlanAndOnlyTheLastATail) {
  TwoStacks two;
  two.network.set_mode(Mode::checkpoint);
  EXPECT_EQ(two.network.plan(), plan_of(Mode::checkpoint, std::vector<int>{2, 3}));
  EXPECT_EQ(two.stacks[0]->plan().kept_tail(), 0);
  EXPECT_EQ(two.stacks[1]->plan().kept_tail(), 1);
  EXPECT_EQ(two.stacks[1]->options().precision, Precision::fp64);
}

TEST(StackNetwork, APlanThatIsNotTheNetworksChangesNothing) {
  TwoStacks two;
  const StepPlan before = two.network.plan();
  StepPlan wrong = two.network.plan_of(Mode::stored);
  wrong.stacks[1].policies.pop_back();
  EXPECT_THROW(two.network.set_plan(wrong), std::invalid_argument);
  wrong.stacks.pop_back();
  EXPECT_THROW(two.network.set_plan(wrong), std::invalid_argument);
  EXPECT_EQ(two.network.plan(), before);
}

TEST(StackNetwork, AStepWithoutABackwardPassIsAnError) {
  TwoStacks two;
  two.backward = false;
  try {
    two.network.step(2, std::make_shared<Pass>(0, 0));
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("loss.backward()"));
  }
  two.backward = true;
  two.network.step(2, std::make_shared<Pass>(0, 0));
  EXPECT_THROW(StackNetwork({}, {}, nullptr), std::invalid_argument);
}

TEST(StackNetwork, WeightsOfCallablesAreBlockWeights) {
  const at::Tensor own = at::ones({4}).requires_grad_(true);
  const at::Tensor shared = at::ones({4}).requires_grad_(true);
  const auto branch = [](const at::Tensor& weight) {
    return Branch([weight](const at::Tensor& x, const BranchCall&) { return x.mul(weight); },
                  {weight});
  };
  const Stack first({{branch(own), branch(shared)}, {branch(own), branch(own)}});
  const Stack second({{branch(shared), branch(shared)}});
  const StackNetwork network({first, second}, {own, shared}, [](auto...) {});
  ASSERT_EQ(network.block_weights().size(), 1u);
  EXPECT_TRUE(network.block_weights().front().is_same(own));
}

TEST(NetworkRestored, PutsPlanOptionsAndExecutorBack) {
  TwoStacks two;
  const StepPlan before = two.network.plan();
  {
    const NetworkRestored restored(two.network);
    two.network.set_options({.arithmetic = Arithmetic::exact});
    two.network.set_mode(Mode::stored);
  }
  EXPECT_EQ(two.network.plan(), before);
  EXPECT_EQ(two.network.options(), (StackOptions{.precision = Precision::fp64}));
  EXPECT_EQ(two.stacks[0]->options(), two.network.options());
}

TEST(NetworkRestored, PutsTheOptionsAndExecutorsOfEachStackBack) {
  TwoStacks two;
  const StackOptions own{.precision = Precision::fp64,
                         .arithmetic = Arithmetic::exact,
                         .fraction_bits = 30,
                         .drift_limit = 0.5,
                         .allow_unused_parameters = true,
                         .seed = 3};
  two.stacks[1]->set_options(own);
  two.stacks[1]->set_executor(std::make_shared<TorchCpuLanes>(2, 1));
  const auto executors = two.stacks[1]->executors();
  {
    const NetworkRestored restored(two.network);
    two.network.set_numerics(Precision::fp32, Arithmetic::floating);
    StackOptions changed = own;
    changed.precision = Precision::fp32;
    changed.arithmetic = Arithmetic::floating;
    EXPECT_EQ(two.stacks[1]->options(), changed);
    EXPECT_EQ(two.stacks[0]->options(), StackOptions{});
    two.network.set_mode(Mode::stored);
    EXPECT_NE(two.stacks[1]->executors(), executors);
  }
  EXPECT_EQ(two.stacks[1]->options(), own);
  EXPECT_EQ(two.stacks[1]->executors(), executors);
  EXPECT_EQ(two.stacks[0]->options(), (StackOptions{.precision = Precision::fp64}));
}

}  // namespace
}  // namespace pareprop
