// What users of ordinary autograd expect of the stack's node.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/compare.h"
#include "pareprop/reversible/stack.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using testing::BranchShape;
using testing::random_tensor;
using testing::test_blocks;

constexpr Mode kModes[] = {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop};

at::Tensor input(std::uint64_t seed = 7) {
  return random_tensor({2, 4, 8}, at::kDouble, seed).requires_grad_(true);
}

const StackOptions kDoubles{.precision = Precision::fp64};

at::Tensor loss_of(const std::pair<at::Tensor, at::Tensor>& y) {
  return y.first.sin().sum().add(y.second.mul(y.second).sum());
}

std::vector<at::Tensor> gradients(Stack& stack, const at::Tensor& x, bool reference) {
  auto wanted = stack->parameters();
  wanted.push_back(x);
  const CallOptions call{.pass = std::make_shared<Pass>(3, 4)};
  const auto y = reference ? stack->reference(x, x, call) : stack->forward(x, x, call);
  return torch::autograd::grad({loss_of(y)}, wanted);
}

class StackContract : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, StackContract, ::testing::ValuesIn(kModes),
                         [](const auto& mode) { return std::string(name(mode.param)); });

TEST_P(StackContract, BackwardFillsGradAsGradReturnsIt) {
  Stack stack(test_blocks(3, {}), GetParam(), kDoubles);
  const at::Tensor x = input();
  const auto expected = gradients(stack, x, true);
  const CallOptions call{.pass = std::make_shared<Pass>(3, 4)};
  loss_of(stack->forward(x, x, call)).backward();
  std::vector<at::Tensor> got;
  for (const auto& p : stack->parameters()) got.push_back(p.grad());
  got.push_back(x.grad());
  EXPECT_LE(max_relative_error(expected, got), 1e-10);
}

TEST_P(StackContract, InverseRecoversTheInputs) {
  const at::Tensor x1 = input(), x2 = input(8);
  Stack stack(test_blocks(3, {}), GetParam(), kDoubles);
  auto [y1, y2] = stack->forward(x1, x2);
  auto [u1, u2] = stack->inverse(y1, y2);
  EXPECT_FALSE(u1.requires_grad());
  EXPECT_LE(max_relative_error({x1, x2}, {u1, u2}), 1e-12);
  EXPECT_GT((y1 - x1).abs().max().item<double>(), 0.1);

  StackOptions exact = kDoubles;
  exact.arithmetic = Arithmetic::exact;
  Stack fixed(test_blocks(3, {}), GetParam(), exact);
  // What the fixed point can hold comes back with every bit.
  const at::Tensor even1 = x1.detach().mul(1024).round().div(1024);
  const at::Tensor even2 = x2.detach().mul(1024).round().div(1024);
  auto [z1, z2] = fixed->forward(even1, even2);
  auto [v1, v2] = fixed->inverse(z1, z2);
  EXPECT_TRUE(at::equal(v1, even1) && at::equal(v2, even2));
}

TEST_P(StackContract, HooksOfParametersRunOnce) {
  Stack stack(test_blocks(3, {}), GetParam(), kDoubles);
  const at::Tensor x = input();
  const auto expected = gradients(stack, x, true);
  auto parameters = stack->parameters();
  int calls = 0;
  parameters[0].register_hook([&](const at::Tensor& g) {
    ++calls;
    return g.mul(2.0);
  });
  const auto got = gradients(stack, x, false);
  EXPECT_EQ(calls, 1);
  EXPECT_LE(max_relative_error({expected[0].mul(2.0)}, {got[0]}), 1e-10);
  EXPECT_LE(max_relative_error({expected[1]}, {got[1]}), 1e-10);
  // And they are back in their place.
  gradients(stack, x, false);
  EXPECT_EQ(calls, 2);
}

TEST_P(StackContract, RetainGraphAllowsASecondBackward) {
  Stack stack(test_blocks(3, {.dropout = 0.2, .drop_path = 0.2}), GetParam(), kDoubles);
  const at::Tensor x = input();
  const auto expected = gradients(stack, x, true);
  auto wanted = stack->parameters();
  wanted.push_back(x);
  const at::Tensor loss = loss_of(stack->forward(x, x, {.pass = std::make_shared<Pass>(3, 4)}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_LE(max_relative_error(expected,
                                 torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/i < 2)),
              1e-10);
  }
  EXPECT_THROW(torch::autograd::grad({loss}, wanted), std::exception);
}

TEST_P(StackContract, GradientOfAGradientIsRefused) {
  Stack stack(test_blocks(2, {}), GetParam(), kDoubles);
  const at::Tensor x = input();
  const at::Tensor loss = loss_of(stack->forward(x, x));
  try {
    torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true);
    FAIL() << "expected an error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("create_graph"), std::string::npos) << error.what();
  }
}

TEST_P(StackContract, FrozenStackStillCarriesTheGradientOfItsInput) {
  Stack stack(test_blocks(3, {}), GetParam(), kDoubles);
  for (auto& p : stack->parameters()) p.set_requires_grad(false);
  const at::Tensor x = input();
  const auto expected = torch::autograd::grad({loss_of(stack->reference(x, x))}, {x});
  const auto got = torch::autograd::grad({loss_of(stack->forward(x, x))}, {x});
  EXPECT_LE(max_relative_error(expected, got), 1e-10);
}

TEST_P(StackContract, InputWithoutGradientTrainsParameters) {
  Stack stack(test_blocks(3, {}), GetParam(), kDoubles);
  const at::Tensor x = input().detach();
  const auto expected =
      torch::autograd::grad({loss_of(stack->reference(x, x))}, stack->parameters());
  const auto got = torch::autograd::grad({loss_of(stack->forward(x, x))}, stack->parameters());
  EXPECT_LE(max_relative_error(expected, got), 1e-10);
}

TEST_P(StackContract, BlocksReportTheirFinalGradientsFromTheTop) {
  auto blocks = test_blocks(4, {});
  blocks[3].f = blocks[1].f;  // shared: final only when block 1 is done
  std::vector<int> order;
  std::vector<std::pair<at::Tensor, at::Tensor>> reported;
  Stack stack(std::move(blocks), GetParam(), kDoubles);
  const Watch watch = stack->watch({.on_block_gradients = [&](const BlockGradients& block) {
    order.push_back(block.block);
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
      reported.emplace_back(block.parameters[i], block.gradients[i].clone());
    }
  }});
  const at::Tensor x = input();
  loss_of(stack->forward(x, x)).backward();
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1, 0}));
  EXPECT_EQ(reported.size(), stack->parameters().size());
  for (const auto& [parameter, gradient] : reported) EXPECT_TRUE(parameter.grad().equal(gradient));
}

TEST_P(StackContract, GradientsChangedInTheCallbackAreWhatParametersReceive) {
  Stack stack(test_blocks(2, {}), GetParam(), kDoubles);
  const at::Tensor x = input();
  const auto expected = gradients(stack, x, true);
  const Watch watch = stack->watch({.on_block_gradients = [](const BlockGradients& block) {
    for (const auto& g : block.gradients) g.mul_(3.0);
  }});
  const auto got = gradients(stack, x, false);
  EXPECT_LE(max_relative_error({expected[0].mul(3.0)}, {got[0]}), 1e-10);
  EXPECT_LE(max_relative_error({expected.back()}, {got.back()}), 1e-10);
}

TEST_P(StackContract, SeveralWatchAtOnceUntilTheirHandlesGo) {
  Stack stack(test_blocks(2, {}), GetParam(), kDoubles);
  const at::Tensor x = input();
  std::atomic<int> blocks = 0, forwards = 0, backwards = 0, tasks = 0;
  const auto step = [&] { loss_of(stack->forward(x, x)).backward(); };
  Watch first = stack->watch({.on_block_gradients = [&](const BlockGradients&) { ++blocks; },
                              .on_forward = [&](const Timeline&) { ++forwards; }});
  {
    const Watch second =
        stack->watch({.on_block_gradients = [&](const BlockGradients&) { ++blocks; },
                      .on_backward = [&](const TaskGraph&, const Timeline&) { ++backwards; },
                      .on_task = [&] { ++tasks; }});
    // A plan that changes does not end the watching.
    stack->set_plan(plan_of(GetParam(), 2));
    step();
    EXPECT_EQ(blocks, 4);
    EXPECT_EQ(forwards, 1);
    EXPECT_EQ(backwards, 1);
    EXPECT_GE(tasks, 2 * (4 + 4));
  }
  tasks = 0;
  step();
  EXPECT_EQ(blocks, 6);
  EXPECT_EQ(backwards, 1);
  EXPECT_EQ(tasks, 0);
  Watch moved = std::move(first);
  step();
  EXPECT_EQ(blocks, 8);
  moved.end();
  step();
  EXPECT_EQ(blocks, 8);
}

TEST_P(StackContract, ACallUnderWayKeepsItsPlanAndItsExecutor) {
  struct Unwanted final : Executor {
    int lanes() const override { return 2; }
    void run(const TaskGraph&, const TaskBody&, Observer*) override {
      throw std::logic_error("asked to run a call that began before");
    }
  };
  Stack stack(test_blocks(3, {}), GetParam(), kDoubles);
  const at::Tensor x = input();
  const auto expected = gradients(stack, x, true);
  auto wanted = stack->parameters();
  wanted.push_back(x);
  const auto y = stack->forward(x, x, {.pass = std::make_shared<Pass>(3, 4)});
  stack->set_executor(std::make_shared<Unwanted>());
  stack->set_plan(plan_of(Mode::pareprop, 3));
  EXPECT_LE(max_relative_error(expected, torch::autograd::grad({loss_of(y)}, wanted)), 1e-10);
  EXPECT_THROW(gradients(stack, x, false), std::logic_error);
  stack->set_executor(nullptr);
  EXPECT_LE(max_relative_error(expected, gradients(stack, x, false)), 1e-10);
}

TEST_P(StackContract, TheUsersGeneratorIsUntouchedAndRunsRepeat) {
  Stack stack(test_blocks(3, {.dropout = 0.3, .drop_path = 0.3}), GetParam(), kDoubles);
  const at::Tensor x = input();
  const auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  const auto first = gradients(stack, x, false);
  EXPECT_TRUE(generator.get_state().equal(before));
  at::randn({3});  // somebody else draws
  EXPECT_TRUE(bit_identical(first, gradients(stack, x, false)));
  // Another step draws other masks.
  auto wanted = stack->parameters();
  const auto other = torch::autograd::grad(
      {loss_of(stack->forward(x, x, {.pass = std::make_shared<Pass>(3, 5)}))}, wanted);
  EXPECT_GT(max_relative_error({first[0]}, {other[0]}), 1e-3);
}

TEST_P(StackContract, CallsWithoutAPassDrawAnew) {
  Stack stack(test_blocks(2, {.dropout = 0.5}), GetParam(), kDoubles);
  const at::Tensor x = input();
  EXPECT_FALSE(stack->forward(x, x).first.equal(stack->forward(x, x).first));
}

TEST_P(StackContract, EvaluationKeepsNothing) {
  memory::install_caching_allocator();
  Stack stack(test_blocks(6, {.dropout = 0.5}), GetParam(), kDoubles);
  stack->eval();
  const at::Tensor x = input();
  c10::AutoGradMode no_graph(false);
  const auto before = memory::usage().total_live;
  const auto [y1, y2] = stack->forward(x, x);
  EXPECT_FALSE(y1.requires_grad());
  EXPECT_LE(memory::usage().total_live - before, 2 * static_cast<std::int64_t>(y1.nbytes()) + 64);
  EXPECT_TRUE(y1.equal(stack->forward(x, x).first)) << "dropout is off in evaluation";
}

TEST_P(StackContract, AnExceptionInABranchArrivesAndTheStackWorksAgain) {
  for (int broken = 0; broken < 6; ++broken) {
    auto blocks = test_blocks(3, {});
    auto fail = std::make_shared<std::atomic<bool>>(false);
    Branch& target =
        broken % 2 == 0 ? blocks[std::size_t(broken / 2)].f : blocks[std::size_t(broken / 2)].g;
    target = Branch(target.module(),
                    [inner = target, fail](const at::Tensor& x, const BranchCall& call) {
                      if (*fail) throw std::domain_error("out of ink");
                      return inner(x, call);
                    });
    Stack stack(std::move(blocks), testing::without_tail(GetParam(), 3), kDoubles);
    const at::Tensor x = input();
    const auto expected = gradients(stack, x, true);
    *fail = true;
    EXPECT_THROW(stack->forward(x, x), std::domain_error);
    *fail = false;
    const at::Tensor loss = loss_of(stack->forward(x, x));
    *fail = true;
    if (GetParam() != Mode::stored) {
      EXPECT_THROW(loss.backward(), std::domain_error) << broken;
    }
    *fail = false;
    EXPECT_LE(max_relative_error(expected, gradients(stack, x, false)), 1e-10);
  }
}

TEST_P(StackContract, NoThreadAndNoMemoryLeaksOverAThousandSteps) {
  memory::install_caching_allocator();
  auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  Stack stack(test_blocks(2, {.width = 4, .dropout = 0.1}), GetParam(), kDoubles);
  const at::Tensor x = random_tensor({1, 2, 4}, at::kDouble, 1).requires_grad_(true);
  auto step = [&] {
    loss_of(stack->forward(x, x)).backward();
    // Some graphs are thrown away without a backward.
    stack->forward(x, x);
  };
  for (int i = 0; i < 10; ++i) step();
  const auto live = memory::usage().total_live;
  const auto thread_count = threads();
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(memory::usage().total_live, live);
  EXPECT_EQ(threads(), thread_count);
}

TEST_P(StackContract, TwoThreadsTrainTwoStacksThatShareAnExecutor) {
  const auto executor = std::make_shared<TorchCpuLanes>(2, 1);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      IntraOpThreads one(1);
      Stack stack(test_blocks(3, {.dropout = 0.2}, 10 * t), GetParam(), kDoubles);
      stack->set_executor(executor);
      const at::Tensor x = input(t);
      const auto expected = gradients(stack, x, true);
      for (int i = 0; i < 20; ++i) {
        if (max_relative_error(expected, gradients(stack, x, false)) > 1e-10) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(StackContractBf16, BranchesReallyComputeInBf16AndEveryLinearGetsItsGradient) {
  const BranchShape shape{.dtype = at::kFloat};
  const at::Tensor x = random_tensor({2, 4, 8}, at::kFloat, 7).requires_grad_(true);
  for (bool plain : {false, true}) {
    BranchShape own = shape;
    own.plain_linear = plain;
    Stack stack(test_blocks(3, own), Mode::pareprop, {.precision = Precision::bf16});
    const auto low = gradients(stack, x, false);
    for (const auto& g : low) EXPECT_EQ(g.scalar_type(), at::kFloat);
    EXPECT_LE(max_relative_error(gradients(stack, x, true), low), 2e-2);
    stack->set_options({});
    const double distance = max_relative_error(gradients(stack, x, false), low);
    EXPECT_GT(distance, 1e-4) << "as exact as float32: was it bf16 at all?";
    EXPECT_LT(distance, 0.2);
  }
}

}  // namespace
}  // namespace pareprop
