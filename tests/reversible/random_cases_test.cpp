// Gradients of every parameter and input against ordinary autograd, over random combinations of
// depth, mode, policies, arithmetic, dropout, extra arguments, shared and frozen parameters,
// several forwards before a backward, and evaluation in between. PAREPROP_SEED and PAREPROP_CASES
// choose others.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "pareprop/ops/compare.h"
#include "pareprop/reversible/stack.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using testing::BranchShape;
using testing::random_tensor;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Case {
  int depth = 0;
  BranchShape shape;
  Mode mode = Mode::stored;
  StackPlan plan;
  StackOptions options;
  bool bias = false, mask = false, one_input = true, frozen = false, shared = false;
  bool two_forwards = false, eval_between = false, only_y1 = false, with_pass = false;
  std::uint64_t seed = 0;

  std::string text() const {
    std::ostringstream out;
    out << "seed " << seed << " depth " << depth << " mode " << name(mode) << " policies [";
    for (Policy policy : plan.policies) out << name(policy) << ' ';
    out << "] precision " << name(options.precision) << " arithmetic " << name(options.arithmetic)
        << " lookahead " << plan.lookahead << " deferred " << plan.deferred << " lanes "
        << plan.lanes << " tail " << plan.kept_tail() << " dropout " << shape.dropout
        << " drop_path " << shape.drop_path << " plain " << shape.plain_linear << " bias " << bias
        << " mask " << mask << " one_input " << one_input << " frozen " << frozen << " shared "
        << shared << " two_forwards " << two_forwards << " eval " << eval_between << " only_y1 "
        << only_y1;
    return out.str();
  }
};

Case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto pick = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  auto coin = [&] { return pick(2) == 0; };
  Case c;
  c.seed = seed;
  constexpr int depths[] = {0, 1, 2, 3, 4, 5, 8, 13};
  c.depth = depths[pick(8)];
  constexpr Mode modes[] = {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop};
  c.mode = modes[pick(4)];
  c.plan = plan_of(c.mode, c.depth);
  if (coin()) {
    for (Policy& policy : c.plan.policies) {
      policy = kPolicies[static_cast<std::size_t>(pick(int{kPolicies.size()}))];
    }
  }
  constexpr Precision precisions[] = {Precision::fp64, Precision::fp32, Precision::bf16};
  c.options.precision = precisions[pick(3)];
  c.options.arithmetic = pick(3) == 0 ? Arithmetic::exact : Arithmetic::floating;
  c.plan.lookahead = pick(4);
  c.plan.deferred = pick(4);
  c.plan.lanes = 2 + pick(2);
  if (!coin()) c.plan.tail = 0;
  c.options.seed = random();
  c.shape.dtype = stream_dtype(c.options.precision);
  c.shape.dropout = coin() ? 0.2 : 0.0;
  c.shape.drop_path = coin() ? 0.3 : 0.0;
  c.shape.plain_linear = pick(3) == 0;
  c.bias = coin();
  c.mask = coin();
  c.one_input = coin();
  c.frozen = coin();
  c.shared = pick(3) == 0;
  c.two_forwards = pick(3) == 0;
  c.eval_between = coin();
  c.only_y1 = pick(4) == 0;
  return c;
}

struct Inputs {
  at::Tensor x1, x2, bias, mask;
  std::vector<at::Tensor> weights;  // of the loss, one a forward and output
};

class Problem {
 public:
  Problem(const Case& c, std::shared_ptr<Executor> executor) : case_(c) {
    auto blocks = testing::test_blocks(c.depth, c.shape, c.seed % 1000);
    if (c.shared && c.depth > 1) {
      blocks.back().f = blocks.front().f;
      blocks[static_cast<std::size_t>(c.depth / 2)].g = blocks.front().g;
    }
    stack_ = Stack(std::move(blocks), c.plan, c.options);
    stack_->set_executor(std::move(executor));
    std::mt19937_64 random(c.seed + 1);
    if (c.frozen) {
      for (auto& p : stack_->parameters()) {
        if (random() % 3 == 0) p.set_requires_grad(false);
      }
    }
    const auto dtype = c.shape.dtype;
    constexpr std::int64_t batch = 3, tokens = 5;
    const std::int64_t width = c.shape.width;
    in_.x1 = random_tensor({batch, tokens, width}, dtype, c.seed + 2).requires_grad_(true);
    in_.x2 = c.one_input
                 ? in_.x1
                 : random_tensor({batch, tokens, width}, dtype, c.seed + 3).requires_grad_(true);
    if (c.bias)
      in_.bias = random_tensor({2, tokens, tokens}, dtype, c.seed + 4).requires_grad_(true);
    if (c.mask) in_.mask = random_tensor({batch, tokens}, at::kFloat, c.seed + 5).gt(-0.8);
    for (int i = 0; i < 4; ++i) {
      in_.weights.push_back(
          random_tensor({batch, tokens, width}, dtype, c.seed + 10 + std::uint64_t(i)));
    }
    for (const auto& p : stack_->parameters()) {
      if (p.requires_grad()) wanted_.push_back(p);
    }
    wanted_.push_back(in_.x1);
    if (!c.one_input) wanted_.push_back(in_.x2);
    if (c.bias) wanted_.push_back(in_.bias);
  }

  // Gradients of everything that wants one.
  std::vector<at::Tensor> gradients(const StackPlan& plan, const StackOptions& options,
                                    bool reference) {
    stack_->set_plan(plan);
    stack_->set_options(options);
    at::Tensor loss;
    const int forwards = case_.two_forwards ? 2 : 1;
    for (int i = 0; i < forwards; ++i) {
      const CallOptions call{.extras = {in_.bias, in_.mask},
                             .pass = std::make_shared<Pass>(options.seed, std::uint64_t(i))};
      const at::Tensor x1 = i == 0 ? in_.x1 : in_.x1.mul(0.5);
      const at::Tensor x2 = case_.one_input ? x1 : in_.x2;
      const auto [y1, y2] =
          reference ? stack_->reference(x1, x2, call) : stack_->forward(x1, x2, call);
      const auto w = static_cast<std::size_t>(2 * i);
      at::Tensor part = y1.mul(in_.weights[w]).sum();
      if (!case_.only_y1) part = part.add(y2.mul(in_.weights[w + 1]).sum());
      loss = loss.defined() ? loss.add(part) : part;
      if (case_.eval_between) {
        stack_->eval();
        c10::AutoGradMode no_graph(false);
        stack_->forward(in_.x1, in_.x1, call);
        stack_->train();
      }
    }
    auto found = torch::autograd::grad({loss}, wanted_, {}, std::nullopt, false, true);
    // y2 alone is unused: ordinary autograd gives the top G nothing where the stack gives zeros.
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i].defined()) found[i] = wanted_[i].new_zeros(wanted_[i].sizes());
    }
    found.push_back(loss.detach());
    return found;
  }

 private:
  Case case_;
  Stack stack_{nullptr};
  Inputs in_;
  std::vector<at::Tensor> wanted_;
};

double tolerance(Precision precision) {
  return precision == Precision::fp64 ? 1e-10 : precision == Precision::fp32 ? 1e-5 : 2e-2;
}

TEST(RandomCases, GradientsEqualThoseOfOrdinaryAutograd) {
  const auto seed = from_environment("PAREPROP_SEED", 20230615);
  const auto cases = from_environment("PAREPROP_CASES", 2400);
  std::cout << "seed " << seed << ", " << cases << " cases\n";
  const auto executor2 = std::make_shared<TorchCpuLanes>(2, 1);
  const auto executor3 = std::make_shared<TorchCpuLanes>(3, 1);
  IntraOpThreads one(1);
  double worst[3] = {0, 0, 0};
  int exact_cases = 0;
  for (std::uint64_t i = 0; i < cases; ++i) {
    const Case c = random_case(seed + i);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    Problem problem(c, c.plan.lanes == 2 ? executor2 : executor3);
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

}  // namespace
}  // namespace pareprop
