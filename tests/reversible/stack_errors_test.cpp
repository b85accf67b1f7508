// Bad input: a clear error that names block and branch, and nothing else disturbed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/stack.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_tensor;
using testing::test_blocks;

const StackOptions kFp64{.precision = Precision::fp64};

at::Tensor sum_of(const std::pair<at::Tensor, at::Tensor>& y) {
  return y.first.add(y.second).sum();
}

// A stack of three blocks whose branch `k` is replaced.
Stack with_branch(int k, const Branch& branch, const StackPlan& plan,
                  const StackOptions& options = kFp64) {
  auto blocks = test_blocks(3, {});
  (k % 2 == 0 ? blocks[std::size_t(k / 2)].f : blocks[std::size_t(k / 2)].g) = branch;
  return Stack(std::move(blocks), plan, options);
}

Stack with_branch(int k, const Branch& branch, Mode mode = Mode::pareprop,
                  const StackOptions& options = kFp64) {
  return with_branch(k, branch, plan_of(mode, 3), options);
}

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(StackErrors, StreamsMustMatch) {
  Stack stack(test_blocks(2, {}), Mode::pareprop, kFp64);
  const at::Tensor x = testing::small_input();
  auto error = [&](const at::Tensor& a, const at::Tensor& b) {
    return message_of([&] { stack->forward(a, b); });
  };
  EXPECT_THAT(error(x, x.slice(0, 0, 1)), AllOf(HasSubstr("same shape"), HasSubstr("[1, 4, 8]")));
  EXPECT_THAT(error(x, x.to(at::kFloat)),
              AllOf(HasSubstr("same shape, dtype"), HasSubstr("Float")));
  EXPECT_THAT(error(x, x.to(at::kMeta)), AllOf(HasSubstr("device"), HasSubstr("meta")));
  EXPECT_THAT(error(x, {}), HasSubstr("undefined"));
  EXPECT_THAT(error(x.to(at::kFloat), x.to(at::kFloat)), HasSubstr("Double streams"));
  Stack half(test_blocks(2, {.dtype = at::kFloat}), Mode::pareprop, {.precision = Precision::bf16});
  EXPECT_THAT(message_of([&] { half->forward(x.to(at::kBFloat16), x.to(at::kBFloat16)); }),
              AllOf(HasSubstr("Float streams"), HasSubstr("BFloat16")));
}

TEST(StackErrors, BranchThatChangesTheShapeIsNamed) {
  Stack stack =
      with_branch(3, Branch([](const at::Tensor& x, const BranchCall&) { return x.sum(1); }, {}));
  EXPECT_THAT(message_of([&] { stack->forward(testing::small_input(), testing::small_input()); }),
              AllOf(HasSubstr("block 1, branch G"), HasSubstr("[2, 8]"), HasSubstr("[2, 4, 8]")));
}

TEST(StackErrors, BranchThatReturnsAnUndefinedTensorIsNamed) {
  Stack stack =
      with_branch(4, Branch([](const at::Tensor&, const BranchCall&) { return at::Tensor(); }, {}));
  EXPECT_THAT(message_of([&] { stack->forward(testing::small_input(), testing::small_input()); }),
              AllOf(HasSubstr("block 2, branch F"), HasSubstr("undefined")));
}

TEST(StackErrors, BranchThatReturnsIntegersIsNamed) {
  Stack stack = with_branch(
      0, Branch([](const at::Tensor& x, const BranchCall&) { return x.to(at::kLong); }, {}));
  EXPECT_THAT(message_of([&] { stack->forward(testing::small_input(), testing::small_input()); }),
              AllOf(HasSubstr("block 0, branch F"), HasSubstr("Long")));
}

TEST(StackErrors, BranchThatDoesNotComputeTheSameAgainIsNamedInEveryRecomputingMode) {
  for (Mode mode : {Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    for (Arithmetic arithmetic : {Arithmetic::floating, Arithmetic::exact}) {
      for (int k = 0; k < 6; ++k) {
        auto count = std::make_shared<int>(0);
        StackOptions options = kFp64;
        options.arithmetic = arithmetic;
        Stack stack = with_branch(
            k,
            Branch(
                [count](const at::Tensor& x, const BranchCall&) { return x.mul(0.1 * ++*count); },
                {}),
            testing::without_tail(mode, 3), options);
        const at::Tensor x = testing::small_input();
        const at::Tensor loss = sum_of(stack->forward(x, x));
        // The topmost branch has nothing above it to compare with when block inputs are kept.
        if (mode == Mode::checkpoint && k == 5) continue;
        EXPECT_THAT(
            message_of([&] { loss.backward(); }),
            AllOf(HasSubstr("block " + std::to_string(k / 2) + ", branch " + (k % 2 ? "G" : "F")),
                  HasSubstr("recomputation differs")))
            << name(mode) << " " << k;
      }
    }
  }
}

TEST(StackErrors, GlobalDropoutIsCaught) {
  Stack stack = with_branch(
      2, Branch([](const at::Tensor& x,
                   const BranchCall&) { return x.mul(x.new_empty(x.sizes()).bernoulli_(0.5)); },
                {}));
  const at::Tensor x = testing::small_input();
  const at::Tensor loss = sum_of(stack->forward(x, x));
  EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("block 1, branch F"));
}

TEST(StackErrors, NegativeAndUnknownOptionsAreRefused) {
  EXPECT_THAT(message_of([] { parse_mode("parepro"); }),
              AllOf(HasSubstr("'parepro'"), HasSubstr("pareprop"), HasSubstr("auto")));
  EXPECT_THAT(message_of([] { parse_policy("keep"); }),
              AllOf(HasSubstr("'keep'"), HasSubstr("anchor")));
  EXPECT_THAT(message_of([] { Stack(test_blocks(2, {}), StackPlan{.policies = {Policy::store}}); }),
              AllOf(HasSubstr("2 blocks"), HasSubstr("got 1")));
  EXPECT_THAT(message_of([] { Stack(test_blocks(2, {}), Mode::automatic); }),
              HasSubstr("plan::Planner"));
}

TEST(StackErrors, PlansThatDoNotFitTheStackAreRefusedAndTheOldOneStays) {
  Stack stack(test_blocks(2, {}), Mode::checkpoint, kFp64);
  const StackPlan before = stack->plan();
  const auto refused = [&](auto change) {
    StackPlan plan = plan_of(Mode::pareprop, 2);
    change(plan);
    const std::string message = message_of([&] { stack->set_plan(plan); });
    EXPECT_EQ(stack->plan(), before);
    return message;
  };
  EXPECT_THAT(refused([](StackPlan& p) { p.policies.push_back(Policy::store); }),
              AllOf(HasSubstr("2 blocks"), HasSubstr("got 3")));
  EXPECT_THAT(refused([](StackPlan& p) { p.lookahead = -1; }), HasSubstr("lookahead"));
  EXPECT_THAT(refused([](StackPlan& p) { p.deferred = -1; }), HasSubstr("deferred"));
  EXPECT_THAT(refused([](StackPlan& p) { p.lanes = 4; }), HasSubstr("2 or 3 lanes, got 4"));
  EXPECT_THAT(refused([](StackPlan& p) { p.lanes = 1; }), HasSubstr("2 or 3 lanes, got 1"));
  EXPECT_THAT(refused([](StackPlan& p) { p.tail = 5; }), HasSubstr("0 to 4 branches, got 5"));
  const at::Tensor x = testing::small_input();
  EXPECT_EQ(message_of([&] { sum_of(stack->forward(x, x)).backward(); }), "no error");
}

TEST(StackErrors, ObserversThatThrowAreNamedAndTheStackWorksAgain) {
  const at::Tensor x = testing::small_input();
  const auto fail = [](const auto&...) { throw std::domain_error("out of ink"); };
  const std::vector<std::pair<std::string, StackObserver>> observers = {
      {"on_block_gradients", {.on_block_gradients = fail}},
      {"on_forward", {.on_forward = fail}},
      {"on_backward", {.on_backward = fail}},
      {"on_task", {.on_task = fail}}};
  for (Mode mode : {Mode::stored, Mode::reprop, Mode::pareprop}) {
    for (const auto& [function, observer] : observers) {
      Stack stack(test_blocks(3, {}), mode, kFp64);
      const auto step = [&] {
        return message_of([&] { sum_of(stack->forward(x, x)).backward(); });
      };
      {
        const Watch watch = stack->watch(observer);
        EXPECT_THAT(step(), AllOf(HasSubstr(function), HasSubstr("out of ink"))) << name(mode);
      }
      EXPECT_EQ(step(), "no error") << name(mode) << " " << function;
    }
  }
}

TEST(StackErrors, ParametersChangedAfterTheForwardPassAreNamed) {
  for (Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    Stack stack(test_blocks(3, {}), mode, kFp64);
    const at::Tensor x = testing::small_input();
    const at::Tensor loss = sum_of(stack->forward(x, x));
    auto parameters = stack->named_parameters();
    {
      c10::AutoGradMode no_graph(false);
      parameters["1.g.weight1"].add_(1.0);
    }
    EXPECT_THAT(
        message_of([&] { loss.backward(); }),
        AllOf(HasSubstr("block 1, branch G"), HasSubstr("weight1"), HasSubstr("changed in place")))
        << name(mode);
    // The next step is an ordinary one.
    EXPECT_EQ(message_of([&] { sum_of(stack->forward(x, x)).backward(); }), "no error");
  }
}

TEST(StackErrors, OutputsAndExtraArgumentsChangedAfterTheForwardPassAreNamed) {
  Stack stack(test_blocks(3, {}), Mode::pareprop, kFp64);
  const at::Tensor x = testing::small_input();
  stack->set_plan(testing::without_tail(Mode::pareprop, 3));
  {
    auto [y1, y2] = stack->forward(x, x);
    const at::Tensor loss = y1.mul(y2).sum();
    c10::AutoGradMode no_graph(false);
    y1.mul_(2.0);
    c10::AutoGradMode graph(true);
    EXPECT_THAT(message_of([&] { loss.backward(); }),
                HasSubstr("modified by an inplace operation"));
    const at::Tensor other = stack->forward(x, x).first;
    const at::Tensor sum = other.sum();
    other.detach().mul_(2.0);
    EXPECT_THAT(message_of([&] { sum.backward(); }),
                AllOf(HasSubstr("output y1"), HasSubstr("changed")));
  }
  const at::Tensor bias = random_tensor({2, 4, 4}, at::kDouble, 3);
  const at::Tensor loss = sum_of(stack->forward(x, x, {.extras = {bias}}));
  bias.mul_(2.0);
  EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("extra argument 0"));
}

TEST(StackErrors, AParameterWithoutGradientIsNamed) {
  for (Mode mode : {Mode::stored, Mode::reprop, Mode::pareprop}) {
    const at::Tensor used = random_tensor({8}, at::kDouble, 1).requires_grad_(true);
    const at::Tensor unused = random_tensor({8}, at::kDouble, 2).requires_grad_(true);
    Stack stack =
        with_branch(2,
                    Branch([used](const at::Tensor& x, const BranchCall&) { return x.mul(used); },
                           {used, unused}),
                    mode);
    const at::Tensor x = testing::small_input();
    EXPECT_THAT(
        message_of([&] { sum_of(stack->forward(x, x)).backward(); }),
        AllOf(HasSubstr("block 1, branch F"), HasSubstr("parameter 1"), HasSubstr("no gradient")));
    StackOptions lenient = kFp64;
    lenient.allow_unused_parameters = true;
    stack->set_options(lenient);
    EXPECT_EQ(message_of([&] { sum_of(stack->forward(x, x)).backward(); }), "no error");
    EXPECT_TRUE(used.grad().defined());
  }
}

TEST(StackErrors, ATensorThatIsNoDeclaredParameterIsNamed) {
  for (Mode mode : {Mode::stored, Mode::reprop, Mode::pareprop}) {
    const at::Tensor hidden = random_tensor({8}, at::kDouble, 1).requires_grad_(true);
    Stack stack = with_branch(
        1, Branch([hidden](const at::Tensor& x, const BranchCall&) { return x.mul(hidden); }, {}),
        mode);
    const at::Tensor x = testing::small_input();
    EXPECT_THAT(message_of([&] { sum_of(stack->forward(x, x)).backward(); }),
                AllOf(HasSubstr("block 0, branch G"), HasSubstr("would be lost")));
  }
}

TEST(StackErrors, AParameterThatIsNoLeafIsRefused) {
  const at::Tensor computed = random_tensor({8}, at::kDouble, 1).requires_grad_(true).mul(2.0);
  Stack stack = with_branch(
      1, Branch([computed](const at::Tensor& x, const BranchCall&) { return x.mul(computed); },
                {computed}));
  EXPECT_THAT(message_of([&] { stack->forward(testing::small_input(), testing::small_input()); }),
              AllOf(HasSubstr("block 0, branch G"), HasSubstr("extra argument")));
}

// Counts its calls in a buffer, as batch norm does.
struct Counting : torch::nn::Module {
  Counting() : calls(register_buffer("calls", at::zeros({1}, at::kDouble))) {}
  at::Tensor forward(const at::Tensor& x) {
    calls.add_(1.0);
    return x.mul(0.5);
  }
  at::Tensor calls;
};

TEST(StackErrors, ABranchThatChangesItsBuffersIsNamed) {
  Stack stack = with_branch(4, Branch(std::make_shared<Counting>()));
  EXPECT_THAT(message_of([&] { stack->forward(testing::small_input(), testing::small_input()); }),
              AllOf(HasSubstr("block 2, branch F"), HasSubstr("buffer")));
}

TEST(StackErrors, ParametersAndBuffersOfACallableHaveTheirNames) {
  const at::Tensor weight = at::ones({}, at::kDouble).requires_grad_(true);
  const at::Tensor calls = at::zeros({}, at::kDouble);
  const auto scale = [weight](const at::Tensor& x, const BranchCall&) { return x.mul(weight); };
  Stack stack =
      with_branch(4, Branch(scale, {{"scale", weight}}, {{"calls", calls}}), Mode::reprop);
  const at::Tensor loss = sum_of(stack->forward(testing::small_input(), testing::small_input()));
  {
    const at::NoGradGuard no_grad;
    weight.add_(1.0);
  }
  EXPECT_THAT(message_of([&] { loss.backward(); }),
              HasSubstr("block 2, branch F: parameter 'scale' was changed"));

  const auto counts = [calls](const at::Tensor& x, const BranchCall&) {
    calls.add_(1.0);
    return x;
  };
  stack = with_branch(4, Branch(counts, std::vector<NamedParameter>{}, {{"calls", calls}}));
  EXPECT_THAT(message_of([&] { stack->forward(testing::small_input(), testing::small_input()); }),
              AllOf(HasSubstr("block 2, branch F"), HasSubstr("buffer")));
}

struct ForeignError : std::runtime_error, PassedOn {
  using std::runtime_error::runtime_error;
};

TEST(StackErrors, ForeignErrorsOfAnObserverPassThroughAsTheyAre) {
  Stack stack(test_blocks(3, {}), Mode::pareprop, kFp64);
  const Watch watch = stack->watch(
      {.on_block_gradients = [](const BlockGradients&) { throw ForeignError("of my own"); }});
  const at::Tensor loss = sum_of(stack->forward(testing::small_input(), testing::small_input()));
  EXPECT_THROW(loss.backward(), ForeignError);
}

TEST(StackErrors, ValuesThatDoNotFitExactStreamsAreNamed) {
  StackOptions exact{.precision = Precision::fp64, .arithmetic = Arithmetic::exact};
  for (double value : {1e9, std::numeric_limits<double>::quiet_NaN()}) {
    Stack stack = with_branch(
        3, Branch([value](const at::Tensor& x, const BranchCall&) { return x.add(value); }, {}),
        Mode::pareprop, exact);
    EXPECT_THAT(message_of([&] { stack->forward(testing::small_input(), testing::small_input()); }),
                AllOf(HasSubstr("block 1, branch G"), HasSubstr("fraction")));
    const at::Tensor x = testing::small_input().detach().add(value);
    EXPECT_THAT(message_of([&] { stack->forward(x, x); }), HasSubstr("input x1"));
  }
  EXPECT_THROW(StreamArithmetic(Arithmetic::exact, at::kFloat, 40), std::invalid_argument);
  Stack stack(test_blocks(1, {}), Mode::pareprop, exact);
  EXPECT_THAT(message_of([&] { stack->reference(testing::small_input(), testing::small_input()); }),
              HasSubstr("stored"));
}

TEST(StackErrors, AMissingExtraArgumentIsNamed) {
  const Branch biased(
      [](const at::Tensor& x, const BranchCall& call) { return x.mul(call.extras[1]); }, {});
  const at::Tensor x = testing::small_input(), bias = random_tensor({8}, at::kDouble, 3);
  for (Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    Stack stack = with_branch(3, biased, mode);
    const auto missing = AllOf(HasSubstr("block 1, branch G"), HasSubstr("extra argument 1"),
                               HasSubstr("CallOptions::extras"));
    EXPECT_THAT(message_of([&] { stack->forward(x, x); }), missing);
    EXPECT_THAT(message_of([&] { stack->reference(x, x); }), missing);
    EXPECT_EQ(message_of([&] {
                sum_of(stack->forward(x, x, {.extras = {{}, bias}})).backward();
              }),
              "no error");
  }
}

// Gradients of a stack after an error are those of one that never had any.
TEST(StackErrors, LeaveTheStackUsable) {
  const at::Tensor x = testing::small_input();
  for (Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    for (Arithmetic arithmetic : {Arithmetic::floating, Arithmetic::exact}) {
      auto wrong = std::make_shared<double>(0.0);
      StackOptions options = kFp64;
      options.arithmetic = arithmetic;
      Stack stack = with_branch(
          2,
          Branch([wrong](const at::Tensor& in, const BranchCall&) { return in.mul(0.1 + *wrong); },
                 {}),
          testing::without_tail(mode, 3), options);
      const auto gradients = [&] {
        stack->zero_grad();
        sum_of(stack->forward(x, x)).backward();
        std::vector<at::Tensor> all;
        for (const at::Tensor& p : stack->parameters()) all.push_back(p.grad().clone());
        return all;
      };
      const std::vector<at::Tensor> expected = gradients();
      const auto expect_as_before = [&](const char* after) {
        *wrong = 0.0;
        const std::vector<at::Tensor> now = gradients();
        for (std::size_t i = 0; i < now.size(); ++i) {
          EXPECT_TRUE(now[i].equal(expected[i])) << name(mode) << " after " << after;
        }
      };
      at::Tensor loss = sum_of(stack->forward(x, x));
      *wrong = 0.5;
      if (mode != Mode::stored) {
        EXPECT_THAT(message_of([&] { loss.backward(); }),
                    AllOf(HasSubstr("recomputation differs"), HasSubstr("--exact"),
                          HasSubstr("StackOptions::drift_limit")));
        EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("freed"));
      }
      expect_as_before("drift");
      *wrong = std::numeric_limits<double>::infinity();
      const std::string range = message_of([&] { stack->forward(x, x); });
      if (arithmetic == Arithmetic::exact) {
        EXPECT_THAT(range, HasSubstr("learning rate"));
      }
      expect_as_before("values out of range");
      *wrong = 0.0;
      loss = sum_of(stack->forward(x, x));
      stack->parameters().front().detach().mul_(1.0);
      EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("changed in place"));
      expect_as_before("a change in place");
    }
  }
}

TEST(Stack, TakesSequentialsAsBranches) {
  torch::manual_seed(1);
  const auto made = [] {
    torch::nn::Sequential layers(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                                 torch::nn::Linear(8, 16), torch::nn::GELU(),
                                 torch::nn::Linear(16, 8));
    layers->to(at::kDouble);
    return layers;
  };
  const at::Tensor x = testing::small_input();
  Stack stack({{made(), made()}, {made(), made()}}, Mode::pareprop, kFp64);
  EXPECT_EQ(stack->parameters().size(), 24u);
  EXPECT_TRUE(stack->named_parameters().contains("1.g.3.weight"));
  sum_of(stack->reference(x, x)).backward();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& p : stack->parameters()) expected.push_back(p.grad().clone());
  for (Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
    stack->set_plan(plan_of(mode, 2));
    stack->zero_grad();
    sum_of(stack->forward(x, x)).backward();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(stack->parameters()[i].grad().allclose(expected[i], 1e-9, 1e-12)) << name(mode);
    }
  }
}

TEST(StackErrors, DropoutOutsideAnyStreamIsRefused) {
  EXPECT_THROW(dropout(testing::small_input(), 0.5), std::logic_error);
  RandomStream stream(1);
  RandomScope scope(stream);
  EXPECT_THROW(dropout(testing::small_input(), 1.0), std::invalid_argument);
  EXPECT_THROW(drop_path(testing::small_input(), -0.1), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop
