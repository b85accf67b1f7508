#pragma once

#include <memory>

#include "pareprop/data/batch.h"
#include "pareprop/models/layers.h"
#include "pareprop/models/model.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// The network that `config` names, for this data: of its classes and channels, or its vocabulary;
// images of the data's own size where it has one that the network can take. What `config` freezes
// does not require gradient. Throws std::invalid_argument when the network is not for such data,
// and FieldError where nothing would be trained.
std::shared_ptr<models::Model> make_model(const TrainConfig& config, const TrainingData& data,
                                          const models::WeightOptions& weights);

// Rows of the table of words: those that `config` gives, or as many as the tokenizer has tokens.
// Throws FieldError when the tokenizer has more.
std::int64_t vocabulary_of(const TrainConfig& config, const data::Tokenizer& tokenizer);

// Gives a new network the deviation of its weights that `config` asks for.
void scale_first_weights(models::Model& model, const TrainConfig& config);

// A batch on the CPU with what a network on an accelerator would have to read back from it: which
// tokens are scored. Others, and images, as they are.
data::Batch with_scored(data::Batch batch);

// The batch on the device of the network's weights, its floating-point values in their type.
data::Batch to_model(const data::Batch& batch, const models::Model& model);

}  // namespace pareprop::train
