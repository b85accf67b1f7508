// Peaks that are predicted for an accelerator, against those of the simulated device.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pareprop/device/device_memory.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/plan/dry_step.h"
#include "pareprop/train/inside_updates.h"
#include "pareprop/train/learner.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::plan {
namespace {

using testing::SimulatedDevice;

struct DeviceCase {
  std::string model;
  models::Overrides overrides;
  StepShape shape;
  StepPlan plan;
  std::string plan_words;

  std::string words() const {
    return model + ", batch " + std::to_string(shape.batch) + ", " +
           std::string(name(shape.precision)) + " " + std::string(name(shape.arithmetic)) + ", " +
           plan_words;
  }

  std::shared_ptr<models::Model> make(c10::Device device) const {
    return models::make_model(model, overrides,
                              {.dtype = stream_dtype(shape.precision), .device = device});
  }
};

StepPlan mixed_plan(const models::Model& model, std::mt19937_64& random) {
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  StepPlan plan = model.plan_of(below(4) == 0 ? Mode::reprop : Mode::pareprop);
  plan.recompute_between = below(2) == 0;
  const int lookahead = below(4);
  for (StackPlan& stack : plan.stacks) {
    if (lookahead > 0) stack.lookahead = lookahead;
    stack.deferred = below(3);
    for (Policy& policy : stack.policies) {
      policy = kPolicies[static_cast<std::size_t>(below(int{kPolicies.size()}))];
    }
  }
  return plan;
}

// The `number`-th case: families and kinds of plans take turns, the rest is random.
DeviceCase draw(int number, std::mt19937_64& random) {
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  DeviceCase c;
  c.model = std::vector{"vit_cifar", "swin_cifar", "mvit_cifar",
                        "roberta_base"}[static_cast<std::size_t>(number % 4)];
  if (c.model == "vit_cifar") c.overrides.depths = {2 + below(5)};
  if (c.model == "roberta_base") {
    c.overrides = {.depths = {2 + below(3)},
                   .width = 48 * (1 + below(3)),
                   .length = 24 + 8 * below(6),
                   .vocabulary = 101 + below(2000)};
  }
  c.overrides.dropout = below(2) == 0 ? 0.0 : 0.1;
  c.shape = {.batch = 2 + below(6),
             .device = SimulatedDevice::device(),
             .precision = below(2) == 0 ? Precision::fp32 : Precision::bf16,
             .arithmetic = below(2) == 0 ? Arithmetic::floating : Arithmetic::exact,
             .optimizer_state = {}};
  const auto model = c.make(at::kMeta);
  const std::vector<Mode> modes = preset_modes();
  const auto kind = static_cast<std::size_t>(number / 4) % (modes.size() + 1);
  if (kind < modes.size()) {
    c.plan = model->plan_of(modes[kind]);
    c.plan_words = name(modes[kind]);
  } else {
    c.plan = mixed_plan(*model, random);
    c.plan_words = c.plan.overlaps() ? "mixed, overlapped" : "mixed";
  }
  return c;
}

using Step = std::function<void(models::Model& model, std::uint64_t number)>;
using MakeStep = std::function<Step(models::Model& model)>;

// Of a step after the first, as CUDA's allocator would count it.
DeviceMemory measured(const DeviceCase& c, const MakeStep& make_step) {
  const auto model = c.make(c.shape.device);
  model->set_options({.precision = c.shape.precision, .arithmetic = c.shape.arithmetic});
  model->set_plan(c.plan);
  model->train();
  const Step step = make_step(*model);
  for (std::uint64_t number = 0; number < 2; ++number) {
    drop_gradients(*model);
    SimulatedDevice::empty_cache();
    reset_device_peaks(c.shape.device);
    step(*model, number);
  }
  return device_memory(c.shape.device);
}

void expect_predicted(const DeviceCase& c, const MakeStep& make_step) {
  SCOPED_TRACE(c.words());
  DryStep dry([&] { return c.make(at::kMeta); }, c.shape);
  const Prediction predicted = dry.run(c.plan);
  const DeviceMemory seen = measured(c, make_step);
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  const double allocated = ratio(predicted.total_peak, seen.allocated_peak);
  const double reserved = ratio(predicted.reserved_peak, seen.reserved_peak);
  std::cout << c.words() << ": allocated " << predicted.total_peak << " / " << seen.allocated_peak
            << " = " << allocated << ", reserved " << predicted.reserved_peak << " / "
            << seen.reserved_peak << " = " << reserved << "\n";
  EXPECT_NEAR(allocated, 1.0, 0.05);
  // Segments of small tensors are of 2 MiB: one more or less is much of networks so small.
  EXPECT_LE(std::abs(predicted.reserved_peak - seen.reserved_peak),
            std::max(seen.reserved_peak / 20, std::int64_t{2} << 20));
}

TEST(DevicePrediction, IsWithinFivePercentOfTheSimulatedDevice) {
  std::mt19937_64 random(20261118);
  for (int i = 0; i < 40; ++i) {
    const DeviceCase c = draw(i, random);
    expect_predicted(c, [&](models::Model&) -> Step {
      return [batch = c.shape.batch](models::Model& model, std::uint64_t number) {
        model.step(batch, std::make_shared<Pass>(0, number));
      };
    });
  }
}

// A large table and few activations: what the optimizer takes for itself is much.
TEST(DevicePrediction, CountsWhatTheOptimizerTakesOnTheDevice) {
  using optim::OptimizerKind, optim::StateKind;
  struct Choice {
    OptimizerKind kind;
    StateKind state;
    Precision precision;
    bool inside;
  };
  for (const Choice& choice :
       {Choice{OptimizerKind::adamw, StateKind::fp32, Precision::fp32, false},
        Choice{OptimizerKind::adamw, StateKind::eight_bit, Precision::fp32, false},
        Choice{OptimizerKind::adamw, StateKind::eight_bit, Precision::fp32, true},
        Choice{OptimizerKind::adamw, StateKind::bf16, Precision::bf16, true},
        Choice{OptimizerKind::sgd, StateKind::fp32, Precision::fp32, false},
        Choice{OptimizerKind::sgd, StateKind::eight_bit, Precision::fp32, true},
        Choice{OptimizerKind::adafactor, StateKind::fp32, Precision::fp32, false},
        Choice{OptimizerKind::adafactor, StateKind::fp32, Precision::fp32, true}}) {
    const optim::OptimizerOptions options{.kind = choice.kind, .state = choice.state};
    DeviceCase c{.model = "roberta_base",
                 .overrides = {.depths = {2}, .width = 96, .length = 16, .vocabulary = 12000},
                 .shape = {.batch = 2,
                           .device = SimulatedDevice::device(),
                           .precision = choice.precision,
                           .optimizer_state = train::dry_optimizer(options),
                           .updates_inside = choice.inside},
                 .plan = {},
                 .plan_words = std::string(name(choice.kind)) + " " +
                               std::string(name(choice.state)) +
                               (choice.inside ? ", inside" : ", after")};
    c.plan = c.make(at::kMeta)->plan_of(Mode::pareprop);
    const auto group = distributed::one_process();
    std::unique_ptr<optim::Optimizer> optimizer;
    std::optional<distributed::Shares> shares;
    std::optional<train::InsideUpdates> inside;
    expect_predicted(c, [&](models::Model& model) -> Step {
      optimizer = optim::make_optimizer(models::trained_parameters(model), options);
      shares.emplace(optimizer->parameters(), *group);
      if (choice.inside) inside.emplace(model, *optimizer, *shares);
      return [&](models::Model& stepped, std::uint64_t number) {
        if (inside) inside->begin_stepping(1e-3, 1.0, nullptr);
        stepped.step(c.shape.batch, std::make_shared<Pass>(0, number, nullptr,
                                                           inside ? inside->taker() : nullptr));
        if (inside) {
          inside->finish();
        } else {
          optimizer->step(1e-3);
        }
      };
    });
  }
}

}  // namespace
}  // namespace pareprop::plan
