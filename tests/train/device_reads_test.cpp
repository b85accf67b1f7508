// What the host reads of an accelerator and waits for, in training steps of every family.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <limits>

#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/train/evaluate.h"
#include "tests/train/device_steps.h"

namespace pareprop::train {
namespace {

using pareprop::testing::SimulatedDevice;
using testing::DeviceSteps;

struct Family {
  const char* name;
  models::Overrides overrides;
};

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {"vit_tiny", {.depths = {3}, .width = 48, .image_size = 64}},
      {"swin_tiny", {.depths = {2, 1, 2, 1}, .width = 24, .image_size = 56}},
      {"mvit_cifar", {.depths = {2, 1, 2}, .width = 16}},
      {"roberta_base", {.depths = {3}, .width = 48, .length = 24, .vocabulary = 101}}};
  return all;
}

// Calls `body` for the steps of every family with dropout, in every mode and arithmetic.
template <typename Body>
void for_every_training(const Body& body) {
  for (const Family& family : families()) {
    models::Overrides change = family.overrides;
    change.dropout = 0.1;
    change.drop_path = 0.1;
    DeviceSteps steps(family.name, change, /*batch=*/2);
    for (const StackOptions& options : {StackOptions{}, StackOptions{.precision = Precision::bf16,
                                                        .arithmetic = Arithmetic::exact}}) {
      steps.model().set_options(options);
      for (const Mode mode : preset_modes()) {
        SCOPED_TRACE(std::string(family.name) + ", " + std::string(name(options.precision)) + ", " +
                     std::string(name(options.arithmetic)) + ", " + std::string(name(mode)));
        steps.model().set_mode(mode);
        body(steps);
      }
    }
  }
}

TEST(DeviceReads, AreNoneInForwardAndBackward) {
  for_every_training([](DeviceSteps& steps) {
    const auto checks = std::make_shared<DeferredChecks>();
    const models::Batch batch = steps.model().example(2, 1);
    SimulatedDevice::reset_counts();
    const at::Tensor loss =
        steps.model().loss(batch, {.pass = std::make_shared<Pass>(1, 2, checks)});
    EXPECT_EQ(SimulatedDevice::counts().host_reads, 0) << "forward";
    loss.backward();
    EXPECT_EQ(SimulatedDevice::counts().host_reads, 0) << "backward";
    EXPECT_EQ(SimulatedDevice::counts().host_waits, 0);
    checks->run();
    EXPECT_LE(SimulatedDevice::counts().host_reads, 1);
    drop_gradients(steps.model());
  });
}

void expect_one_read(DeviceSteps& steps, const DeviceSteps::Way& way) {
  steps.run(way);
  SimulatedDevice::reset_counts();
  EXPECT_EQ(steps.run(way).not_finite, "");
  EXPECT_EQ(SimulatedDevice::counts().host_reads, 1);
  EXPECT_EQ(SimulatedDevice::counts().host_waits, 0);
}

TEST(DeviceReads, OfAWholeStepAreOne) {
  for_every_training([](DeviceSteps& steps) { expect_one_read(steps, {}); });
}

// Batches are copied ahead, from pinned memory.
TEST(DeviceReads, OfAnEvaluationAreOneForEachBatch) {
  class Few : public testing::HostBatches {
   public:
    using HostBatches::HostBatches;
    std::int64_t per_epoch() const override { return 3; }
  };
  const auto group = distributed::one_process();
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const auto host = models::make_model(family.name, family.overrides);
    const auto model =
        models::make_model(family.name, family.overrides, {.device = SimulatedDevice::device()});
    const auto data = std::make_shared<Few>(host, 2);
    SimulatedDevice::reset_counts();
    const Evaluation found = evaluate(*model, data, *group, {.workers = 0});
    EXPECT_EQ(SimulatedDevice::counts().host_reads, 3);
    EXPECT_EQ(SimulatedDevice::counts().host_waits, 0);
    const Evaluation expected = evaluate(*host, data, *group, {.workers = 0});
    EXPECT_EQ(found.rows, expected.rows);
    EXPECT_NEAR(found.loss, expected.loss, 1e-4);
  }
}

TEST(DeviceReads, OfAStepWithUpdatesInsideAreOne) {
  DeviceSteps steps(families()[0].name, families()[0].overrides, /*batch=*/2);
  for (const Mode mode : preset_modes()) {
    SCOPED_TRACE(name(mode));
    steps.model().set_mode(mode);
    for (const double clip : {0.0, 0.1}) expect_one_read(steps, {.clip = clip, .inside = true});
  }
}

TEST(DeviceReads, SayThatALossIsNotFiniteBeforeWeightsChange) {
  const at::NoGradGuard no_grad;
  DeviceSteps steps(families()[0].name, families()[0].overrides, /*batch=*/2);
  const auto weights = models::trained_parameters(steps.model());
  weights.back().second.fill_(std::numeric_limits<double>::quiet_NaN());
  std::vector<at::Tensor> before;
  for (const auto& [name, weight] : weights) before.push_back(weight.cpu());
  for (const DeviceSteps::Way& way :
       {DeviceSteps::Way{.clip = 0.1}, DeviceSteps::Way{.clip = 0.1, .inside = true}}) {
    SCOPED_TRACE(way.inside ? "inside" : "after");
    const at::AutoGradMode gradients(true);
    const StepOutcome outcome = steps.run(way);
    EXPECT_NE(outcome.not_finite, "");
    EXPECT_FALSE(outcome.half_taken);
    for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
      EXPECT_TRUE(at::equal(weights[i].second.cpu(), before[i])) << weights[i].first;
    }
  }
}

}  // namespace
}  // namespace pareprop::train
