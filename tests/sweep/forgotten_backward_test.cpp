// A step of one's own that forgets its backward pass, where gradients of an earlier step are still
// there: an error for whoever runs it, and the network goes on as before.

#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "pareprop/ops/linear.h"
#include "pareprop/plan/dry_step.h"
#include "pareprop/plan/step_times.h"
#include "pareprop/reversible/network.h"
#include "pareprop/sweep/verify.h"
#include "pareprop/trace/recorder.h"

namespace pareprop {
namespace {

constexpr std::int64_t kWidth = 4;

// Three blocks; only the first `remembered` steps run a backward pass.
struct ForgetfulNetwork {
  explicit ForgetfulNetwork(int steps, c10::Device device = at::kCPU)
      : remembered(steps), weight(at::eye(kWidth, device).requires_grad_(true)) {}

  void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) {
    const at::Tensor x = at::ones({samples, kWidth}, weight.options().requires_grad(false));
    const auto [y1, y2] = stack->forward(x, x, {.pass = pass});
    if (remembered-- > 0) y1.mul(y2).sum().backward();
  }

  Block block() const {
    const BranchFunction half = [w = weight](const at::Tensor& x, const BranchCall&) {
      return pareprop::linear(x, w).mul(0.5).tanh();
    };
    return {Branch(half, {weight}), Branch(half, {weight})};
  }

  int remembered;
  at::Tensor weight;
  Stack stack{std::vector<Block>{block(), block(), block()}};
  StackNetwork network{
      {stack}, {weight}, [this](std::int64_t samples, const auto& pass) { step(samples, pass); }};
};

template <typename Action>
void expect_asks_for_backward(Action&& action) {
  try {
    action();
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("loss.backward()"), std::string::npos) << error.what();
  }
}

TEST(ForgottenBackward, IsAnErrorOfTheStepThoughThereAreOldGradients) {
  ForgetfulNetwork forgetful(1);
  const auto pass = std::make_shared<Pass>(0, 0);
  forgetful.network.step(1, pass);
  const at::Tensor old = forgetful.weight.grad().clone();
  expect_asks_for_backward([&] { forgetful.network.step(1, std::make_shared<Pass>(0, 0)); });
  forgetful.remembered = 1;
  forgetful.network.step(1, std::make_shared<Pass>(0, 0));
  EXPECT_TRUE(forgetful.weight.grad().allclose(2 * old));
}

TEST(ForgottenBackward, OfAStepThatMakesItsGradientsAnewIsNone) {
  ForgetfulNetwork forgetful(9);
  StackNetwork anew({forgetful.stack}, {forgetful.weight},
                    [&](std::int64_t samples, const auto& pass) {
                      forgetful.weight.mutable_grad().reset();
                      forgetful.step(samples, pass);
                    });
  for (int step = 0; step < 3; ++step) anew.step(1, std::make_shared<Pass>(0, 0));
  forgetful.remembered = 0;
  expect_asks_for_backward([&] { anew.step(1, std::make_shared<Pass>(0, 0)); });
}

TEST(ForgottenBackward, IsAnErrorOfAPlan) {
  // The second pass of an accumulated step finds the gradients of the first.
  std::shared_ptr<ForgetfulNetwork> made;
  plan::DryStep dry(
      [&] {
        made = std::make_shared<ForgetfulNetwork>(1, at::kMeta);
        return std::shared_ptr<Network>(made, &made->network);
      },
      {.batch = 2, .accumulates = true});
  const StepPlan plan = made->network.plan_of(Mode::reprop);
  expect_asks_for_backward([&] { dry.run(plan); });
  made->remembered = 4;
  const std::int64_t after_the_error = dry.run(plan).at_most;
  EXPECT_EQ(dry.run(plan).at_most, after_the_error);
  EXPECT_EQ(made->remembered, 0);
}

TEST(ForgottenBackward, IsAnErrorWhereStepsAreTimed) {
  ForgetfulNetwork forgetful(0);
  const auto measure = [&] {
    return plan::measure_step_times(forgetful.network, {{.samples = 2, .adds = true}});
  };
  const StepPlan before = forgetful.network.plan();
  expect_asks_for_backward([&] { measure(); });
  EXPECT_EQ(forgetful.network.plan(), before);
  forgetful.remembered = 100;
  EXPECT_EQ(measure().size(), 1U);
}

TEST(ForgottenBackward, IsAnErrorOfVerify) {
  ForgetfulNetwork forgetful(1);
  forgetful.network.step(1, std::make_shared<Pass>(0, 0));
  const StepPlan before = forgetful.network.plan();
  expect_asks_for_backward([&] { verify(forgetful.network, {}); });
  EXPECT_EQ(forgetful.network.plan(), before);

  // Not in the reference of the comparison any more: its stack has backward passes of its own.
  int backward_passes = 0;
  const Watch watch = forgetful.stack->watch(
      {.on_backward = [&](const TaskGraph&, const Timeline&) { ++backward_passes; }});
  forgetful.remembered = 1;
  forgetful.network.step(1, std::make_shared<Pass>(0, 0));
  EXPECT_EQ(backward_passes, 1);

  forgetful.remembered = 2;  // the reference and one mode
  const auto rows = verify(forgetful.network, {.modes = {Mode::reprop, Mode::pareprop}});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].holds) << rows[0].error;
  EXPECT_NE(rows[1].error.find("loss.backward()"), std::string::npos) << rows[1].error;
}

TEST(ForgottenBackward, IsAnErrorOfAStepThatIsRecorded) {
  ForgetfulNetwork forgetful(1);
  forgetful.network.step(1, std::make_shared<Pass>(0, 0));
  TraceRecorder recorder(forgetful.network);
  recorder.begin("forgetful");
  expect_asks_for_backward([&] { forgetful.network.step(1, std::make_shared<Pass>(0, 0)); });
  const std::size_t forgotten = recorder.finish().spans.size();
  forgetful.remembered = 1;
  recorder.begin("whole");
  forgetful.network.step(1, std::make_shared<Pass>(0, 0));
  EXPECT_GT(recorder.finish().spans.size(), forgotten);
}

}  // namespace
}  // namespace pareprop
