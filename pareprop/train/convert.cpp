#include "pareprop/train/convert.h"

#include <c10/core/GradMode.h>

#include <stdexcept>
#include <string>

#include "pareprop/models/registry.h"
#include "pareprop/models/roberta.h"
#include "pareprop/models/vit.h"

namespace pareprop::train {
namespace {

void expect_convertible(const TrainedRun& run, models::Ending ending) {
  if (!run.config.plain) {
    throw std::invalid_argument("the network of " + run.weights + " is reversible already");
  }
  if (model_of(run.config).starts_with("mvit")) {
    throw std::invalid_argument(
        "MViT cannot be made reversible with its weights: the stages of the reversible MViT widen "
        "by putting both streams side by side, those of the ordinary one by a layer; train a "
        "reversible one from the start, or convert a ViT or Swin");
  }
  const auto* const text = dynamic_cast<const models::RobertaBase*>(run.model.get());
  if (text != nullptr && text->config().encoder != models::Encoder::norm_first) {
    throw std::invalid_argument(
        "an encoder with norms behind its sums cannot be reversible, as what such a norm takes "
        "away is lost: this is " +
        std::string(models::name(text->config().encoder)) +
        "; expected one with norms first (RobertaPreLayerNorm)");
  }
  if (models::classifies_texts(*run.model)) {
    throw std::invalid_argument(
        "a network that gives classes of whole texts cannot be trained here; expected one that "
        "guesses words (RobertaPreLayerNormForMaskedLM)");
  }
  if (ending == models::Ending::concat) {
    throw std::invalid_argument(
        "the ending concat is twice as wide as what the pretrained layers behind the blocks read; "
        "expected sum, mean, y1, y2 or sum-x");
  }
}

// With the sizes that the run's data, not its configuration, gave the network.
models::Overrides sizes_of(const TrainConfig& config, const models::Model& model) {
  models::Overrides sizes = overrides_of(config);
  if (const auto* image = dynamic_cast<const models::ImageModel*>(&model)) {
    sizes.image_size = image->shape().image_size;
    sizes.channels = image->shape().channels;
    sizes.classes = image->shape().classes;
  } else if (const auto* roberta = dynamic_cast<const models::RobertaBase*>(&model)) {
    sizes.vocabulary = roberta->config().vocabulary;
    sizes.positions = roberta->config().positions;
    sizes.length = roberta->config().length;
  }
  return sizes;
}

void copy_weights(const models::Model& from, models::Model& to) {
  const c10::NoGradGuard guard;
  auto theirs = from.named_parameters();
  for (auto& parameter : to.named_parameters()) {
    parameter.value().copy_(theirs[parameter.key()]);
    theirs.erase(parameter.key());
  }
  if (!theirs.is_empty()) {
    throw std::logic_error("the reversible network has no " + theirs.keys().front());
  }
}

}  // namespace

TrainedRun made_reversible(TrainedRun run, models::Ending ending) {
  expect_convertible(run, ending);
  const auto ordinary = run.model;
  run.config.plain = false;
  run.config.ending = models::name(ending);
  run.config.class_token = dynamic_cast<const models::PlainViT*>(ordinary.get()) != nullptr;
  const auto weights = ordinary->weight_options();
  run.model = models::make_model(
      model_of(run.config), sizes_of(run.config, *ordinary),
      {.dtype = c10::typeMetaToScalarType(weights.dtype()), .device = weights.device()});
  copy_weights(*ordinary, *run.model);
  set_to_evaluate(*run.model, numerics_of(run.config));
  return run;
}

}  // namespace pareprop::train
