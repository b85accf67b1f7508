// Gradients of every parameter and input against ordinary autograd, over random combinations of
// depth, mode, policies, arithmetic, dropout, extra arguments, shared and frozen parameters,
// several forwards before a backward, and evaluation in between. See tests/random_cases.h.

#include "tests/random_cases.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "pareprop/lanes/serial_lane.h"
#include "pareprop/ops/compare.h"
#include "pareprop/reversible/added_gradients.h"
#include "pareprop/reversible/network.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/reversible/random_stack.h"

namespace pareprop {
namespace {

// Takes the gradients of all parameters but some, and adds up those of several passes.
class Sums : public GradientTaker {
 public:
  explicit Sums(const Stack& stack) : top_(stack->depth() - 1) {
    const auto parameters = stack->parameters();
    for (std::size_t i = 0; i < parameters.size(); i += 5) {
      left_.insert(parameters[i].unsafeGetTensorImpl());
    }
  }

  bool takes(const at::Tensor& parameter) const override {
    return !left_.contains(parameter.unsafeGetTensorImpl());
  }

  void take(const BlockGradients& block) override {
    EXPECT_FALSE(busy_.exchange(true));
    EXPECT_TRUE(block.block == last_ - 1 || block.block == top_) << block.block;
    last_ = block.block;
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
      at::Tensor& sum = sums_[block.parameters[i].unsafeGetTensorImpl()];
      sum = sum.defined() ? sum.add(block.gradients[i]) : block.gradients[i];
    }
    busy_ = false;
  }

  at::Tensor of(const at::Tensor& parameter) const {
    const auto found = sums_.find(parameter.unsafeGetTensorImpl());
    return found == sums_.end() ? at::Tensor() : found->second;
  }

 private:
  const int top_;
  std::set<const c10::TensorImpl*> left_;
  std::map<const c10::TensorImpl*, at::Tensor> sums_;
  std::atomic<bool> busy_ = false;
  int last_ = -1;  // block
};

using testing::RandomStack;
using testing::StackProblem;

double tolerance(Precision precision) {
  return precision == Precision::fp64 ? 1e-10 : precision == Precision::fp32 ? 1e-5 : 2e-2;
}

TEST(RandomCases, GradientsEqualThoseOfOrdinaryAutograd) {
  const auto seed = testing::case_seed(20230615);
  const int cases = testing::case_count(200);
  std::cout << "seed " << seed << ", " << cases << " cases\n";
  const auto executor2 = std::make_shared<TorchCpuLanes>(2, 1);
  const auto executor3 = std::make_shared<TorchCpuLanes>(3, 1);
  IntraOpThreads one(1);
  double worst[3] = {0, 0, 0};
  int exact_cases = 0;
  for (int i = 0; i < cases; ++i) {
    const RandomStack c(seed + i);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    StackProblem problem(c, c.plan.lanes == 2 ? executor2 : executor3);
    const StackPlan stored = plan_of(Mode::stored, c.depth);
    const bool exact = c.options.arithmetic == Arithmetic::exact;
    const auto expected = problem.gradients(stored, c.options, /*reference=*/!exact);
    const auto got = problem.gradients(c.plan, c.options, false);
    const double error = max_relative_error(expected, got);
    ASSERT_LE(error, tolerance(c.options.precision));
    worst[static_cast<int>(c.options.precision)] =
        std::max(worst[static_cast<int>(c.options.precision)], error);
    if (!exact) continue;
    ++exact_cases;
    ASSERT_TRUE(bit_identical(expected, got));
    // Integer streams are fixed-point roundings of the float ones: the same network, nearly.
    StackOptions floating = c.options;
    floating.arithmetic = Arithmetic::floating;
    const double distance = max_relative_error(problem.gradients(stored, floating, true), got);
    ASSERT_LE(distance, c.options.precision == Precision::bf16 ? 5e-2 : 1e-3);
  }
  std::cout << "worst relative error: fp32 " << worst[0] << ", bf16 " << worst[1] << ", fp64 "
            << worst[2] << "; " << exact_cases << " exact cases bit-identical\n";
}

// Streams are not recovered but made again: every plan has the bits of stored training.
TEST(RandomCases, OrdinaryBlocksHaveTheGradientsOfOrdinaryAutograd) {
  const auto seed = testing::case_seed(20230615);
  const int cases = testing::case_count(100);
  const auto executor2 = std::make_shared<TorchCpuLanes>(2, 1);
  const auto executor3 = std::make_shared<TorchCpuLanes>(3, 1);
  IntraOpThreads one(1);
  double worst = 0.0;
  int same = 0;
  for (int i = 0; i < cases; ++i) {
    const RandomStack c =
        RandomStack(seed + i).coupled(i % 3 == 0 ? Coupling::sequential : Coupling::residual);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    StackProblem problem(c, c.plan.lanes == 2 ? executor2 : executor3);
    const StackPlan stored = plan_of(Mode::stored, c.depth);
    const auto expected = problem.gradients(stored, c.options, /*reference=*/true);
    const auto kept = problem.gradients(stored, c.options, false);
    const auto got = problem.gradients(c.plan, c.options, false);
    ASSERT_TRUE(bit_identical(kept, got));
    const double error = max_relative_error(expected, got);
    ASSERT_LE(error, tolerance(c.options.precision));
    worst = std::max(worst, error);
    same += bit_identical(expected, got) ? 1 : 0;
  }
  std::cout << same << " of " << cases << " cases have the bits of ordinary autograd; worst error "
            << worst << "\n";
  EXPECT_GT(2 * same, cases);
}

TEST(RandomCases, GradientsThatAreTakenInTheMiddleHaveTheSameBits) {
  const auto seed = testing::case_seed(20230615);
  const int cases = testing::case_count(50);
  const auto executor2 = std::make_shared<TorchCpuLanes>(2, 1);
  const auto executor3 = std::make_shared<TorchCpuLanes>(3, 1);
  IntraOpThreads one(1);
  int taken = 0;
  for (int i = 0; i < cases; ++i) {
    RandomStack c(seed + i);
    if (i % 3 == 0) c = c.coupled(Coupling::residual);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    StackProblem problem(c, c.plan.lanes == 2 ? executor2 : executor3);
    const auto expected = problem.gradients(c.plan, c.options, false);
    const auto sums = std::make_shared<Sums>(problem.stack());
    auto got = problem.gradients(c.plan, c.options, false, sums);
    for (std::size_t w = 0; w < problem.wanted().size(); ++w) {
      const at::Tensor sum = sums->of(problem.wanted()[w]);
      if (!sum.defined()) continue;
      ASSERT_TRUE(got[w].eq(0).all().item<bool>()) << "left to autograd as well";
      got[w] = sum;
      ++taken;
    }
    ASSERT_TRUE(bit_identical(expected, got));
  }
  EXPECT_GT(taken, cases);
}

// Sums so far, the same every time.
void give_sums(const std::vector<at::Tensor>& weights) {
  std::uint64_t seed = 1;
  for (const at::Tensor& weight : weights) {
    weight.mutable_grad() = testing::random_tensor(weight.sizes(), weight.scalar_type(), seed++);
  }
}

TEST(RandomCases, GradientsAreAddedToSumsInPlace) {
  const auto seed = testing::case_seed(20230616);
  const int cases = testing::case_count(50);
  const auto executor2 = std::make_shared<TorchCpuLanes>(2, 1);
  const auto executor3 = std::make_shared<TorchCpuLanes>(3, 1);
  IntraOpThreads one(1);
  int summed = 0;
  for (int i = 0; i < cases; ++i) {
    RandomStack c(seed + i);
    if (i % 3 == 0) c = c.coupled(Coupling::residual);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    StackProblem problem(c, c.plan.lanes == 2 ? executor2 : executor3);
    const StackNetwork network({problem.stack()}, problem.stack()->parameters(),
                               [](std::int64_t, const auto&) {});
    const auto gradients = problem.gradients(c.plan, c.options, false);
    const auto sums_of = [&](const std::shared_ptr<Executor>& executor) {
      Stack stack = problem.stack();
      stack->set_executor(executor);
      give_sums(stack->parameters());
      const auto adding = std::make_shared<AddedGradients>(network);
      const auto left = problem.gradients(c.plan, c.options, false, adding);
      std::vector<at::Tensor> sums;
      for (std::size_t w = 0; w < problem.wanted().size(); ++w) {
        const at::Tensor& weight = problem.wanted()[w];
        if (!adding->takes(weight)) continue;
        EXPECT_TRUE(left[w].eq(0).all().item<bool>()) << "left to autograd as well";
        sums.push_back(weight.grad());
      }
      return sums;
    };
    const auto on_lanes = sums_of(c.plan.lanes == 2 ? executor2 : executor3);
    ASSERT_TRUE(bit_identical(on_lanes, sums_of(std::make_shared<SerialLane>())));
    give_sums(problem.stack()->parameters());
    for (std::size_t w = 0, s = 0; w < problem.wanted().size(); ++w) {
      const at::Tensor& weight = problem.wanted()[w];
      if (!weight.grad().defined() || s == on_lanes.size()) continue;
      const double limit = weight.scalar_type() == at::kDouble ? 1e-12 : 1e-5;
      ASSERT_LE(max_relative_error({weight.grad().add(gradients[w])}, {on_lanes[s++]}), limit);
      ++summed;
    }
  }
  EXPECT_GT(summed, cases);
}

}  // namespace
}  // namespace pareprop
