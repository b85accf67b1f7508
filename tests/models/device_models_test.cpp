// Networks of every family on the simulated device (tests/simulated_device/simulated_device.h):
// no race, the same gradients, and launches.

#include <gtest/gtest.h>

#include <iostream>

#include "pareprop/models/registry.h"
#include "pareprop/ops/compare.h"
#include "pareprop/ops/device_path.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::models {
namespace {

using pareprop::testing::SimulatedDevice;

struct SmallNetwork {
  const char* name;
  Overrides overrides;
};

const std::vector<SmallNetwork>& small_networks() {
  static const std::vector<SmallNetwork> all{
      {"vit_tiny", {.depths = {4}, .width = 48, .image_size = 64}},
      {"swin_tiny", {.depths = {2, 1, 3, 1}, .width = 24, .image_size = 56}},
      {"mvit_cifar", {.depths = {2, 1, 2}, .width = 16}},
      {"roberta_base", {.depths = {3}, .width = 48, .length = 24, .vocabulary = 101}}};
  return all;
}

std::shared_ptr<Model> small_network(const SmallNetwork& small, at::Device device) {
  Overrides changed = small.overrides;
  changed.dropout = 0.1;
  changed.drop_path = 0.1;
  const auto model = make_model(small.name, changed);
  model->to(device);
  return model;
}

// Of one training step, on the CPU.
std::vector<at::Tensor> gradients(Model& model, const StackOptions& options, const StepPlan& plan,
                                  bool reference = false) {
  model.set_options(options);
  model.set_plan(plan);
  const auto pass = std::make_shared<Pass>(1, 2);
  Batch batch = model.example(2, 1);
  model.loss(batch, {.pass = pass, .reference = reference}).backward();
  std::vector<at::Tensor> found;
  for (const at::Tensor& weight : model.weights()) found.push_back(weight.grad().cpu());
  drop_gradients(model);
  return found;
}

TEST(DeviceModels, EveryFamilyInEveryModeHasNoRaceAndTheSameGradients) {
  for (const SmallNetwork& small : small_networks()) {
    const auto model = small_network(small, SimulatedDevice::device());
    const auto cpu = small_network(small, at::kCPU);
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const StackOptions floating{.precision = precision};
      const StackOptions exact{.precision = precision, .arithmetic = Arithmetic::exact};
      const StepPlan stored = model->plan_of(Mode::stored);
      const auto expected = gradients(*cpu, floating, stored, /*reference=*/true);
      const auto bits = [&] {
        const DevicePathScope compositions;  // the same operators as on the device
        return gradients(*cpu, exact, stored);
      }();
      for (const Mode mode : preset_modes()) {
        SCOPED_TRACE(std::string(small.name) + ", " + std::string(name(precision)) + ", " +
                     std::string(name(mode)));
        const StepPlan plan = model->plan_of(mode);
        EXPECT_LE(max_relative_error(expected, gradients(*model, floating, plan)),
                  precision == Precision::fp32 ? 2e-5 : 5e-2);
        EXPECT_TRUE(bit_identical(bits, gradients(*model, exact, plan)));
      }
    }
  }
}

TEST(DeviceModels, MixedPlansHaveNoRaceAndTheSameGradients) {
  for (const SmallNetwork& small : small_networks()) {
    const auto model = small_network(small, SimulatedDevice::device(1));
    const StackOptions exact{.arithmetic = Arithmetic::exact};
    const auto cpu = small_network(small, at::kCPU);
    const auto bits = [&] {
      const DevicePathScope compositions;
      return gradients(*cpu, exact, cpu->plan_of(Mode::stored));
    }();
    for (int lookahead = 0; lookahead < 4; ++lookahead) {
      StepPlan plan = model->plan_of(Mode::pareprop);
      plan.recompute_between = lookahead % 2 == 0;
      std::size_t next = static_cast<std::size_t>(lookahead);
      for (StackPlan& stack : plan.stacks) {
        stack.lookahead = lookahead;
        stack.deferred = 3 - lookahead;
        for (Policy& policy : stack.policies) policy = kPolicies[next++ % kPolicies.size()];
      }
      SCOPED_TRACE(std::string(small.name) + ", look-ahead " + std::to_string(lookahead));
      EXPECT_TRUE(bit_identical(bits, gradients(*model, exact, plan)));
    }
  }
}

TEST(DeviceModels, OperatorsOfAStepAreCounted) {
  const auto count = [](const Overrides& overrides, Mode mode) {
    const auto model = make_model("vit_small", overrides);
    model->to(SimulatedDevice::device());
    model->set_mode(mode);
    const Batch example = model->example(1, 1);
    SimulatedDevice::reset_counts();
    model->loss(example).backward();
    return SimulatedDevice::counts();
  };
  for (const Mode mode : preset_modes()) {
    const auto counts = count({}, mode);
    std::cout << "vit_small, " << name(mode) << ": " << counts.launches << " operators, "
              << counts.host_reads << " host reads, " << counts.host_waits << " host waits, "
              << counts.records << " events\n";
    EXPECT_GT(counts.launches, 100);
  }
  std::cout << "the plain network: " << count({.plain = true}, Mode::stored).launches
            << " operators\n";
}

}  // namespace
}  // namespace pareprop::models
