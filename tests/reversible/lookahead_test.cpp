// Two and more stacks in one pass: recovery of the lower one begins beside the upper one's
// gradients.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/compare.h"
#include "pareprop/reversible/stack.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using testing::test_blocks;

// Stacks with a non-reversible part between them that mixes the streams.
struct Stages {
  std::vector<Stack> stacks;
  std::vector<Watch> watches;
  int below_tasks = 0;  // recover tasks that ran for the next stack below

  Stages(const std::vector<int>& depths, StackPlan like, const StackOptions& options,
         std::shared_ptr<Executor> executor = nullptr) {
    std::uint64_t seed = 1;
    like.tail = 0;
    const auto executors = std::make_shared<Executors>(std::move(executor));
    for (int depth : depths) {
      like.policies = plan_of(like.overlap ? Mode::pareprop : Mode::stored, depth).policies;
      Stack& stack = stacks.emplace_back(
          test_blocks(depth, {.dropout = 0.1, .drop_path = 0.1}, seed += 20), like, options);
      stack->set_executors(executors);
      watches.push_back(
          stack->watch({.on_backward = [this](const TaskGraph& graph, const Timeline&) {
            for (const Task& task : graph.tasks()) below_tasks += task.stack;
          }}));
    }
  }

  std::vector<at::Tensor> gradients(const at::Tensor& x, bool reference, bool retain = false) {
    std::vector<at::Tensor> wanted{x};
    at::Tensor h = x;
    const auto pass = std::make_shared<Pass>(5, 6);
    for (Stack& stack : stacks) {
      const CallOptions call{.pass = pass};
      const auto [y1, y2] = reference ? stack->reference(h, h, call) : stack->forward(h, h, call);
      h = y1.mul(0.5).add(y2.tanh());
      for (const auto& p : stack->parameters()) wanted.push_back(p);
    }
    const at::Tensor loss = h.mul(h).sum();
    if (retain) torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/true);
    return torch::autograd::grad({loss}, wanted);
  }
};

TEST(LookAhead, GradientsOfSeveralStacksAreRight) {
  const auto executor = std::make_shared<TorchCpuLanes>(2, 1);
  for (const auto& depths :
       std::vector<std::vector<int>>{{1, 1}, {2, 3}, {3, 1, 2}, {1, 5, 1, 1}, {0, 2, 0, 3}}) {
    for (int lookahead : {0, 1, 2, 3, 5, 9}) {
      for (int deferred : {0, 2}) {
        for (bool retain : {false, true}) {
          Stages network(depths, {.overlap = true, .lookahead = lookahead, .deferred = deferred},
                         {.precision = Precision::fp64}, executor);
          const at::Tensor x = testing::small_input();
          const auto expected = network.gradients(x, true);
          EXPECT_LE(max_relative_error(expected, network.gradients(x, false, retain)), 1e-10)
              << "lookahead " << lookahead << " deferred " << deferred;
          if (lookahead == 0) {
            EXPECT_EQ(network.below_tasks, 0);
          } else if (depths[0] > 0) {
            EXPECT_GT(network.below_tasks, 0);
          }
        }
      }
    }
  }
}

TEST(LookAhead, ExactBitsAreThoseOfStored) {
  IntraOpThreads one(1);
  const StackOptions options{.precision = Precision::fp64, .arithmetic = Arithmetic::exact};
  const at::Tensor x = testing::small_input();
  Stages stored({3, 2, 1}, {.overlap = false}, options);
  Stages overlapped({3, 2, 1}, {.overlap = true}, options);
  EXPECT_TRUE(bit_identical(stored.gradients(x, false), overlapped.gradients(x, false)));
}

TEST(LookAhead, TheUpperStackAloneCanBeDifferentiatedRepeatedlyAndTheLowerOneLater) {
  const at::Tensor x = testing::small_input();
  for (bool retain_upper : {true, false}) {
    Stages network({3, 2}, {.overlap = true}, {.precision = Precision::fp64});
    auto forward = [&](bool reference) {
      const CallOptions call{.pass = std::make_shared<Pass>(5, 6)};
      auto run = [&](Stack& stack, const at::Tensor& h) {
        const auto y = reference ? stack->reference(h, h, call) : stack->forward(h, h, call);
        return y.first.add(y.second.tanh());
      };
      const at::Tensor lower = run(network.stacks[0], x);
      return std::pair{lower, run(network.stacks[1], lower)};
    };
    const auto upper_parameters = network.stacks[1]->parameters();
    const auto lower_parameters = network.stacks[0]->parameters();
    const auto expected = forward(true);
    const auto expected_upper =
        torch::autograd::grad({expected.second.sum()}, upper_parameters, {}, true);
    const auto expected_lower =
        torch::autograd::grad({expected.first.sin().sum()}, lower_parameters);
    const auto got = forward(false);
    const int times = retain_upper ? 3 : 1;
    for (int i = 0; i < times; ++i) {
      EXPECT_LE(max_relative_error(
                    expected_upper,
                    torch::autograd::grad({got.second.sum()}, upper_parameters, {}, retain_upper)),
                1e-10);
    }
    // The lower stack still answers, once or more often.
    for (int i = 0; i < times; ++i) {
      EXPECT_LE(
          max_relative_error(expected_lower, torch::autograd::grad({got.first.sin().sum()},
                                                                   lower_parameters, {}, true)),
          1e-10);
    }
  }
}

TEST(LookAhead, WhatWasRecoveredInAdvanceIsFreedWhenTheLowerStackIsNotDifferentiated) {
  memory::install_caching_allocator();
  Stages network({2, 2}, {.overlap = true}, {.precision = Precision::fp64});
  const at::Tensor x = testing::small_input();
  auto step = [&] {
    const auto pass = std::make_shared<Pass>(5, 6);
    const auto y = network.stacks[0]->forward(x, x, {.pass = pass});
    const at::Tensor h = y.first.add(y.second);
    const auto z = network.stacks[1]->forward(h, h, {.pass = pass});
    // Only the upper stack's parameters: the lower node never runs.
    return torch::autograd::grad({z.first.sum().add(z.second.sum())},
                                 network.stacks[1]->parameters());
  };
  step();
  const auto live = memory::usage().total_live;
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(memory::usage().total_live, live);
}

}  // namespace
}  // namespace pareprop
