// What holds for the networks of every family.

#include <gtest/gtest.h>

#include <random>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/meter.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/compare.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop::models {
namespace {

struct Small {
  const char* name;
  Overrides overrides;
};

void drop_gradients(Model& model) {
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
}

TEST(EveryFamily, ActivationBytesAreWhatTheMeterSeesInARealStep) {
  memory::install_caching_allocator();
  for (const auto& [model_name, overrides] :
       {Small{"vit_tiny", {.image_size = 112}}, Small{"swin_tiny", {.image_size = 80}},
        Small{"mvit_tiny", {.image_size = 112}}}) {
    const ModelSummary summary = summarise(model_name, overrides);
    EXPECT_LT(summary.activation_bytes_reversible, summary.activation_bytes_stored) << model_name;
    auto model = make_model(model_name, overrides);
    for (const auto& [mode, predicted] :
         {std::pair{Mode::stored, summary.activation_bytes_stored},
          std::pair{Mode::reprop, summary.activation_bytes_reversible}}) {
      model->set_mode(mode);
      const Batch example = model->example(1, 1);
      memory::reset_peaks();
      const auto before = memory::usage().activation_live;
      model->loss(example).backward();
      const auto measured = double(memory::usage().activation_peak - before);
      EXPECT_NEAR(predicted, measured, 0.05 * measured) << model_name << " " << name(mode);
      drop_gradients(*model);
    }
  }
}

TEST(EveryFamily, ProductsAloneGiveTheBitsOfStoredTrainingInLessMemory) {
  memory::install_caching_allocator();
  for (const auto& [model_name, overrides] :
       {Small{"vit_tiny", {.depths = {3}, .width = 48, .image_size = 64}},
        Small{"swin_tiny", {.depths = {2, 1, 2, 1}, .width = 24, .image_size = 56}},
        Small{"mvit_cifar", {.depths = {2, 1, 2}, .width = 16}},
        Small{"roberta_base", {.depths = {3}, .width = 48, .length = 24, .vocabulary = 101}}}) {
    Overrides changed = overrides;
    changed.dropout = 0.1;
    auto model = make_model(model_name, changed);
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      SCOPED_TRACE(model_name + std::string(", ") + std::string(name(precision)));
      std::vector<std::vector<at::Tensor>> gradients;
      std::vector<std::int64_t> peaks;
      for (const Policy policy : {Policy::store, Policy::products}) {
        model->set_options({.precision = precision});
        model->set_plan(uniform_plan(policy, /*overlap=*/false, model->depths()));
        const Batch example = model->example(2, 1);
        memory::reset_peaks();
        const auto before = memory::usage().activation_live;
        model->loss(example, {.pass = std::make_shared<Pass>(1, 2)}).backward();
        peaks.push_back(memory::usage().activation_peak - before);
        gradients.emplace_back();
        for (auto& parameter : model->parameters()) {
          gradients.back().push_back(parameter.grad().clone());
        }
        drop_gradients(*model);
      }
      EXPECT_TRUE(bit_identical(gradients[0], gradients[1]));
      EXPECT_LT(peaks[1], peaks[0]);
    }
  }
}

StepPlan random_plain_plan(const Model& model, std::mt19937& random) {
  StepPlan plan = model.recomputing_plan(/*overlap=*/random() % 2 == 0);
  plan.recompute_between = random() % 2 == 0;
  const auto allowed = policies_of(model.coupling());
  for (StackPlan& stack : plan.stacks) {
    for (Policy& policy : stack.policies) policy = allowed[random() % allowed.size()];
    stack.lookahead = static_cast<int>(random() % 4);
    stack.deferred = static_cast<int>(random() % 3);
    if (random() % 2 == 0) stack.tail = 0;
  }
  return plan;
}

// Every mix of policies has the bits of storing everything, which has those of ordinary autograd.
TEST(EveryFamily, PlainNetworksHaveTheGradientsOfOrdinaryAutogradUnderEveryPlan) {
  IntraOpThreads one(1);
  std::mt19937 random(5);
  for (const auto& [model_name, overrides] :
       {Small{"vit_tiny", {.depths = {4}, .width = 48, .image_size = 64}},
        Small{"swin_tiny", {.depths = {2, 1, 3, 0}, .width = 24, .image_size = 64}},
        Small{"mvit_cifar", {.depths = {2, 1, 3}, .width = 16}},
        Small{"roberta_base", {.depths = {3}, .width = 48, .length = 24, .vocabulary = 101}},
        Small{"roberta_base",
              {.depths = {3},
              .width = 48,
              .length = 24,
              .vocabulary = 101,
              .encoder = Encoder::roberta}},
        Small{"roberta_base",
              {.depths = {2},
              .width = 48,
              .classes = 5,
              .length = 24,
              .vocabulary = 101,
              .encoder = Encoder::bert}}}) {
    Overrides changed = overrides;
    changed.dropout = 0.1;
    changed.drop_path = 0.2;
    changed.plain = true;
    auto model = make_model(model_name, changed);
    model->set_executor(std::make_shared<TorchCpuLanes>(2, 1));
    const Batch example = model->example(2, 1);
    const auto gradients = [&](const StepPlan& plan, bool reference) {
      model->set_plan(plan);
      model->loss(example, {.pass = std::make_shared<Pass>(1, 2), .reference = reference})
          .backward();
      std::vector<at::Tensor> all;
      for (auto& parameter : model->parameters()) all.push_back(parameter.grad().clone());
      drop_gradients(*model);
      return all;
    };
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      SCOPED_TRACE(model_name + std::string(", ") + std::string(name(precision)));
      model->set_options({.precision = precision});
      const StepPlan stored = model->plan_of(Mode::stored);
      const auto expected = gradients(stored, /*reference=*/true);
      EXPECT_TRUE(bit_identical(expected, gradients(stored, false)));
      EXPECT_TRUE(bit_identical(expected, gradients(model->plan_of(Mode::checkpoint), false)));
      for (int i = 0; i < 8; ++i) {
        const StepPlan plan = random_plain_plan(*model, random);
        EXPECT_TRUE(bit_identical(expected, gradients(plan, false))) << "plan " << i;
      }
    }
    EXPECT_THROW(model->set_mode(Mode::reprop), std::invalid_argument);
    StepPlan anchored = model->plan_of(Mode::checkpoint);
    anchored.stacks.front().policies.front() = Policy::anchor;
    EXPECT_THROW(model->set_plan(anchored), std::invalid_argument);
  }
}

}  // namespace
}  // namespace pareprop::models
