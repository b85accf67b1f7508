// What is alive at once, by the meter.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <set>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/reversible/stack.h"
#include "pareprop/reversible/tape.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using memory::Tag;
using testing::BranchShape;
using testing::random_tensor;
using testing::test_blocks;

const BranchShape kShape{.width = 64, .dtype = at::kFloat};

at::Tensor large_input() { return random_tensor({4, 32, 64}, at::kFloat, 7).requires_grad_(true); }

struct Peaks {
  std::int64_t tape = 0;
  std::int64_t activations = 0;
};

Peaks peaks_of_step(int depth, const StackPlan& plan,
                    std::shared_ptr<Executor> executor = nullptr) {
  Stack stack(test_blocks(depth, kShape), plan);
  stack->set_executor(std::move(executor));
  const at::Tensor x = large_input();
  Peaks peaks;
  for (int i = 0; i < 3; ++i) {
    memory::reset_peaks();
    const auto before = memory::usage();
    auto [y1, y2] = stack->forward(x, x);
    at::Tensor loss = y1.mul(y2).sum();
    y1.reset();
    y2.reset();
    loss.backward();
    const auto after = memory::usage();
    peaks.tape = std::max(peaks.tape, after.peak_of(Tag::tape) - before.live_of(Tag::tape));
    peaks.activations = std::max(peaks.activations, after.activation_peak - before.activation_live);
  }
  return peaks;
}

// The peak of recording one branch alone, F or G.
std::int64_t branch_tape(bool f) {
  const auto blocks = test_blocks(1, kShape);
  const BranchSetting setting{.branch = f ? &blocks[0].f : &blocks[0].g, .where = "alone"};
  const at::Tensor x = large_input().detach();
  const auto before = memory::usage().live_of(Tag::tape);
  memory::reset_peaks();
  const auto recorded = record_tape(setting, x, {});
  return memory::usage().peak_of(Tag::tape) - before;
}

class StackMemory : public ::testing::Test {
 protected:
  void SetUp() override { memory::install_caching_allocator(); }
};

TEST_F(StackMemory, RepropHasOneBranchTapeAlive) {
  const auto limit = std::max(branch_tape(true), branch_tape(false));
  for (int depth : {1, 2, 3, 7, 12}) {
    for (bool tail : {true, false}) {
      const auto peak = peaks_of_step(depth, tail ? plan_of(Mode::reprop, depth)
                                                  : testing::without_tail(Mode::reprop, depth))
                            .tape;
      EXPECT_LE(peak, limit) << "depth " << depth;
      EXPECT_GT(peak, limit / 2);
    }
  }
}

TEST_F(StackMemory, ParepropHasAtMostTwoBlocksTapesAlive) {
  const auto limit = 2 * (branch_tape(true) + branch_tape(false));
  for (int depth : {1, 2, 3, 7, 12}) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      EXPECT_LE(peaks_of_step(depth, plan_of(Mode::pareprop, depth)).tape, limit)
          << "depth " << depth;
    }
  }
}

// Runs an overlapped schedule on one thread, recovery as early as its edges allow: the same peak
// each time, where real lanes add more or less of each other's temporaries.
class InOrder final : public Executor {
 public:
  int lanes() const override { return 2; }
  void run(const TaskGraph& graph, const TaskBody& body, Observer*) override {
    for (const Task& task : graph.tasks()) body(task);
  }
};

TEST_F(StackMemory, ActivationsDoNotGrowWithDepth) {
  for (Mode mode : {Mode::reprop, Mode::pareprop}) {
    const auto in_order = std::make_shared<InOrder>();
    const auto shallow = double(peaks_of_step(12, plan_of(mode, 12), in_order).activations);
    EXPECT_NEAR(double(peaks_of_step(48, plan_of(mode, 48), in_order).activations), shallow,
                0.03 * shallow)
        << name(mode);
    const auto with_lanes = double(peaks_of_step(48, plan_of(mode, 48)).activations);
    // While one lane is at its peak the other may be in the middle of a branch.
    const auto other_lane = double(std::max(branch_tape(true), branch_tape(false)));
    EXPECT_LE(with_lanes, shallow + other_lane) << name(mode);
  }
}

TEST_F(StackMemory, StoredGrowsWithDepthAndCheckpointGrowsByTwoStreamsABlock) {
  const std::int64_t stream = 4 * 32 * 64 * 4;
  auto growth = [&](Mode mode) {
    return (peaks_of_step(12, plan_of(mode, 12)).activations -
            peaks_of_step(4, plan_of(mode, 4)).activations) /
           8;
  };
  EXPECT_GT(growth(Mode::stored), 10 * stream);
  EXPECT_NEAR(double(growth(Mode::checkpoint)), 2.0 * double(stream), 0.1 * double(stream));
}

TEST_F(StackMemory, PoliciesKeepWhatTheySay) {
  const std::int64_t stream = 4 * 32 * 64 * 4;
  auto kept = [&](Policy policy) {
    Stack stack(test_blocks(8, kShape),
                StackPlan{.policies = std::vector<Policy>(8, policy), .tail = 0});
    const at::Tensor x = large_input();
    const auto before = memory::usage().activation_live;
    const auto y = stack->forward(x, x);
    return memory::usage().activation_live - before;
  };
  const auto reverse = kept(Policy::reverse);
  EXPECT_NEAR(double(reverse), 2.0 * double(stream), 0.2 * double(stream));  // the outputs
  EXPECT_NEAR(double(kept(Policy::anchor) - reverse), 7.0 * double(stream), 1.1 * double(stream));
  EXPECT_NEAR(double(kept(Policy::checkpoint) - reverse), 14.0 * double(stream),
              1.1 * double(stream));
  EXPECT_GT(kept(Policy::store), 8 * 10 * stream);
}

// Gives its input on, and a gradient that nobody else holds.
struct FreshGradient : torch::autograd::Function<FreshGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& grads) {
    at::Tensor fresh = grads[0].clone();
    made.insert(fresh.data_ptr());
    return {fresh};
  }
  static inline std::set<const void*> made;
};

TEST_F(StackMemory, GradientsOfTheOutputsAreWrittenOver) {
  Stack stack(test_blocks(3, kShape), Mode::reprop);
  const at::Tensor x1 = large_input(), x2 = large_input();
  const auto [y1, y2] = stack->forward(x1, x2);
  FreshGradient::made.clear();
  const at::Tensor loss = FreshGradient::apply(y1).mul(FreshGradient::apply(y2)).sum();
  const auto found = torch::autograd::grad({loss}, {x1, x2});
  ASSERT_EQ(FreshGradient::made.size(), 2u);
  const std::set<const void*> used{found[0].data_ptr(), found[1].data_ptr()};
  EXPECT_EQ(used, FreshGradient::made);
}

TEST_F(StackMemory, NothingIsLeftOverOf300Steps) {
  const at::Tensor x = random_tensor({2, 8, 64}, at::kFloat, 7);
  for (Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    Stack stack(test_blocks(2, kShape), mode);
    std::int64_t live = 0;
    const auto step = [&] {
      const auto [y1, y2] = stack->forward(x, x);
      y1.mul(y2).sum().backward();
      for (at::Tensor& weight : stack->parameters()) weight.mutable_grad().reset();
    };
    for (int i = 0; i < 300; ++i) {
      step();
      if (i == 2) live = memory::usage().total_live;
    }
    EXPECT_EQ(memory::usage().total_live, live) << name(mode);
  }
}

TEST_F(StackMemory, GradientsAreTaggedAsSuch) {
  Stack stack(test_blocks(3, kShape), Mode::pareprop);
  const at::Tensor x = large_input();
  const auto before = memory::usage().live_of(Tag::gradients);
  stack->forward(x, x).first.sum().backward();
  std::int64_t bytes = 0;
  for (const auto& p : stack->parameters()) bytes += static_cast<std::int64_t>(p.nbytes());
  EXPECT_NEAR(double(memory::usage().live_of(Tag::gradients) - before), double(bytes),
              0.02 * double(bytes));
}

}  // namespace
}  // namespace pareprop
