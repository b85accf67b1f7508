// A batch that is computed in parts has the loss and the gradients of the whole.

#include <gtest/gtest.h>

#include "pareprop/models/registry.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/reversible/added_gradients.h"
#include "tests/models/small_families.h"

namespace pareprop::models {
namespace {

struct WholeStep {
  double loss = 0.0;
  std::vector<at::Tensor> gradients;
};

// In parts of so many samples; the last may have fewer.
WholeStep step_in_parts(Model& model, const Batch& batch, std::int64_t samples) {
  WholeStep step;
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  const auto rows = static_cast<double>(model.row_targets(batch).size(0));
  std::shared_ptr<GradientTaker> adding;
  const std::int64_t all = batch.input.size(0);
  for (std::int64_t first = 0; first < all; first += samples) {
    const std::int64_t count = std::min(samples, all - first);
    const Batch part = data::samples_of(batch, first, count);
    const auto pass = std::make_shared<Pass>(1, 2, nullptr, adding, 1, BatchPart{first, count});
    const at::Tensor loss = model.loss(part, {.pass = pass})
                                .mul(static_cast<double>(model.row_targets(part).size(0)) / rows);
    loss.backward();
    step.loss += loss.item<double>();
    adding = std::make_shared<AddedGradients>(model);
  }
  for (const auto& parameter : model.parameters()) {
    step.gradients.push_back(parameter.grad().clone());
  }
  return step;
}

void expect_alike(const WholeStep& found, const WholeStep& expected, const std::string& words) {
  EXPECT_NEAR(found.loss, expected.loss, 1e-12 * std::abs(expected.loss)) << words;
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const double largest = expected.gradients[i].abs().max().item<double>();
    const double off = (found.gradients[i] - expected.gradients[i]).abs().max().item<double>();
    EXPECT_LE(off, 1e-10 * largest + 1e-16) << words << ", parameter " << i;
  }
}

TEST(BatchParts, HaveTheLossAndGradientsOfTheWholeWithDropout) {
  for (const testing::SmallFamily& network : testing::kSmallFamilies) {
    for (const bool plain : {false, true}) {
      Overrides changed = network.overrides;
      changed.plain = plain;
      changed.dropout = 0.2;
      changed.drop_path = 0.3;
      auto model = make_model(network.name, changed, {.dtype = at::kDouble, .seed = 5});
      model->set_options({.precision = Precision::fp64});
      const Batch batch = model->example(6, 1);
      model->train();
      std::vector<Mode> modes{Mode::stored, Mode::checkpoint};
      if (!plain) modes.insert(modes.end(), {Mode::reprop, Mode::pareprop});
      for (const bool on_device_path : {false, true}) {
        const DevicePathScope scope(on_device_path);
        model->set_mode(Mode::stored);
        const WholeStep whole = step_in_parts(*model, batch, 6);
        for (const Mode mode : modes) {
          model->set_mode(mode);
          for (const std::int64_t samples : {2, 4}) {
            const std::string words = std::string(network.name) + (plain ? " plain " : " ") +
                                      std::string(name(mode)) + " by " + std::to_string(samples) +
                                      (on_device_path ? " on the device path" : "");
            expect_alike(step_in_parts(*model, batch, samples), whole, words);
          }
        }
      }
    }
  }
}

// The test above would pass without masks that differ.
TEST(BatchParts, SamplesOfAPartAreNotDrawnForAsTheFirstOnes) {
  auto model =
      make_model("vit_tiny", {.depths = {2}, .width = 48, .image_size = 64, .dropout = 0.5});
  model->train();
  const Batch two = model->example(2, 1);
  Batch same = two;
  same.input = two.input.narrow(0, 0, 1).expand_as(two.input).contiguous();
  same.target = two.target.narrow(0, 0, 1).expand_as(two.target).contiguous();
  const auto loss = [&](std::int64_t first) {
    const auto pass = std::make_shared<Pass>(1, 2, nullptr, nullptr, 1, BatchPart{first, 1});
    return model->loss(data::samples_of(same, first, 1), {.pass = pass}).item<double>();
  };
  EXPECT_NE(loss(0), loss(1));
}

}  // namespace
}  // namespace pareprop::models
