#include "pareprop/train/model_for_data.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pareprop/models/fine_tuning.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/roberta.h"
#include "pareprop/ops/device_path.h"

namespace pareprop::train {
namespace {

void check_suits(const TrainConfig& config, bool images) {
  const auto model = models::make_model(model_of(config), {}, {.device = at::kMeta});
  const bool takes_images = dynamic_cast<const models::ImageModel*>(model.get()) != nullptr;
  if (takes_images == images) return;
  throw std::invalid_argument(
      "the model " + model_of(config) + " is for " + (takes_images ? "images" : "text") +
      ", but the data '" + config.data + "' is " + (images ? "images" : "text") +
      ": choose another model, for example --model " + (images ? "vit_small" : "roberta_base") +
      ", or other data, for example --data " + (images ? "persuasion" : "digits"));
}

std::shared_ptr<models::Model> image_model(const TrainConfig& config, const data::ImageData& images,
                                           const models::WeightOptions& weights) {
  models::Overrides change = overrides_of(config);
  change.classes = static_cast<std::int64_t>(images.train->class_names().size());
  change.channels = images.channels;
  const bool square = images.size.height == images.size.width && images.size.height > 0;
  if (!change.image_size && square) {
    change.image_size = images.size.height;
    try {
      models::make_model(model_of(config), change, {.device = at::kMeta});
    } catch (const std::invalid_argument&) {
      change.image_size.reset();  // it cannot take them as they are: they are resized
    }
  }
  return models::make_model(model_of(config), change, weights);
}

std::shared_ptr<models::Model> whole_model(const TrainConfig& config, const TrainingData& data,
                                           const models::WeightOptions& weights) {
  check_suits(config, data.images.has_value());
  if (data.images) return image_model(config, *data.images, weights);
  const data::Tokenizer& tokenizer = data.text->tokenizer;
  if (tokenizer.padding() != models::RobertaConfig::kPadding) {
    throw FieldError("tokenizer", "the token <pad> has the id " +
                                      std::to_string(tokenizer.padding()) + "; expected " +
                                      std::to_string(models::RobertaConfig::kPadding) +
                                      ", as in RoBERTa's tokenizers");
  }
  models::Overrides change = overrides_of(config);
  change.vocabulary = vocabulary_of(config, tokenizer);
  change.length = config.seq_len.value_or(kTextLength);
  return models::make_model(model_of(config), change, weights);
}

void check_head_steps(const TrainConfig& config, const models::Model& model) {
  if (config.head_steps == 0) return;
  const io::NamedTensors trained = models::trained_parameters(model);
  const auto of_head = [](const auto& named) { return models::is_of_head(named.first); };
  if (std::any_of(trained.begin(), trained.end(), of_head)) return;
  throw FieldError("head_steps", "expected 0, because --freeze " + config.freeze +
                                     " leaves nothing of the head to train");
}

}  // namespace

std::shared_ptr<models::Model> make_model(const TrainConfig& config, const TrainingData& data,
                                          const models::WeightOptions& weights) {
  auto model = whole_model(config, data, weights);
  if (config.freeze.empty()) return model;
  try {
    models::freeze(*model, config.freeze);
  } catch (const std::invalid_argument& error) {
    throw FieldError("freeze", error.what());
  }
  check_head_steps(config, *model);
  return model;
}

std::int64_t vocabulary_of(const TrainConfig& config, const data::Tokenizer& tokenizer) {
  const auto tokens = static_cast<std::int64_t>(tokenizer.size());
  if (config.embeddings.value_or(tokens) >= tokens) return config.embeddings.value_or(tokens);
  throw FieldError("embeddings", "expected " + std::to_string(tokens) +
                                     " or more, as many as the tokenizer has tokens, got " +
                                     std::to_string(*config.embeddings));
}

void scale_first_weights(models::Model& model, const TrainConfig& config) {
  if (config.initial_std <= 0.0) return;
  constexpr double kOfModels = 0.02;
  c10::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 2) parameter.mul_(config.initial_std / kOfModels);
  }
}

data::Batch with_scored(data::Batch batch) {
  const at::Tensor& target = batch.target;
  const bool text = target.defined() && target.dim() == 2 && target.scalar_type() == at::kLong;
  if (text && target.is_cpu()) batch.scored = models::scored_tokens(target);
  return batch;
}

data::Batch to_model(const data::Batch& batch, const models::Model& model) {
  const at::TensorOptions weights = model.weight_options();
  const auto place = [&](const at::Tensor& t) {
    if (!t.defined()) return t;
    return at::isFloatingType(t.scalar_type())
               ? t.to(weights.device(), weights.dtype().toScalarType())
               : t.to(weights.device());
  };
  const data::Batch whole = reads_wait(weights.device()) ? with_scored(batch) : batch;
  return {.input = place(whole.input),
          .target = place(whole.target),
          .mask = place(whole.mask),
          .scored = place(whole.scored)};
}

}  // namespace pareprop::train
