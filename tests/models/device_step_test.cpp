// A training step of every family on the device path.

#include <gtest/gtest.h>

#include "pareprop/models/registry.h"
#include "pareprop/ops/compare.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/reversible/deferred_checks.h"
#include "tests/models/small_families.h"
#include "tests/ops/host_reads.h"

namespace pareprop::models {
namespace {

std::shared_ptr<Model> network_of(const testing::SmallFamily& family, double dropout) {
  Overrides changed = family.overrides;
  changed.dropout = dropout;
  changed.drop_path = dropout;
  return make_model(family.name, changed);
}

// Gradients of all parameters.
std::vector<at::Tensor> step_of(Model& model, const Batch& batch,
                                const std::shared_ptr<DeferredChecks>& checks) {
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  model.loss(batch, {.pass = std::make_shared<Pass>(1, 2, checks)}).backward();
  std::vector<at::Tensor> all;
  for (const auto& parameter : model.parameters()) all.push_back(parameter.grad());
  return all;
}

TEST(DeviceStep, OfEveryFamilyReadsNothingOnTheHost) {
  const DevicePathScope scope;
  for (const testing::SmallFamily& family : testing::kSmallFamilies) {
    for (const double dropout : {0.0, 0.1}) {
      auto model = network_of(family, dropout);
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        model->set_options({.precision = precision, .arithmetic = Arithmetic::exact});
        for (const Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop, Mode::pareprop}) {
          model->set_mode(mode);
          const Batch batch = model->example(2, 1);
          const auto checks = std::make_shared<DeferredChecks>();
          const testing::HostReads reads;
          step_of(*model, batch, checks);
          EXPECT_EQ(reads.count(), 0) << family.name << " " << name(mode);
          checks->run();
          EXPECT_EQ(reads.count(), 0) << "one transfer of all numbers is no read of one";
        }
      }
    }
  }
}

TEST(DeviceStep, OfEveryFamilyHasTheGradientsOfTheKernels) {
  for (const testing::SmallFamily& family : testing::kSmallFamilies) {
    for (const double dropout : {0.0, 0.1}) {
      auto model = network_of(family, dropout);
      const Batch batch = model->example(3, 1);
      for (const Precision precision : {Precision::fp32, Precision::fp64}) {
        model->to(stream_dtype(precision));
        model->set_options({.precision = precision});
        model->set_mode(Mode::reprop);
        Batch same = batch;
        if (at::isFloatingType(batch.input.scalar_type())) {
          same.input = batch.input.to(stream_dtype(precision));
        }
        const auto expected = step_of(*model, same, nullptr);
        const DevicePathScope scope;
        EXPECT_LT(max_relative_error(expected, step_of(*model, same, nullptr)),
                  precision == Precision::fp32 ? 2e-4 : 1e-9)
            << family.name << " " << name(precision) << " " << dropout;
      }
    }
  }
}

TEST(DeviceStep, OfEveryFamilyHasTheSameBitsInEveryModeWithExactStreams) {
  const DevicePathScope scope;
  for (const testing::SmallFamily& family : testing::kSmallFamilies) {
    auto model = network_of(family, 0.1);
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      model->set_options({.precision = precision, .arithmetic = Arithmetic::exact});
      const Batch batch = model->example(2, 1);
      std::vector<at::Tensor> expected;
      for (const Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop}) {
        model->set_mode(mode);
        const auto gradients = step_of(*model, batch, nullptr);
        if (expected.empty()) expected = gradients;
        EXPECT_TRUE(bit_identical(expected, gradients)) << family.name << " " << name(mode);
      }
    }
  }
}

TEST(DeviceStep, TokensOutsideTheVocabularyAreFoundWhenTheChecksRun) {
  const DevicePathScope scope;
  auto model = network_of(testing::kSmallFamilies[3], 0.0);
  Batch batch = model->example(2, 1);
  batch.input.select(0, 1).select(0, 3).fill_(101);
  const auto checks = std::make_shared<DeferredChecks>();
  step_of(*model, batch, checks);
  EXPECT_THROW(checks->run(), std::invalid_argument);
  EXPECT_THROW(step_of(*model, batch, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::models
