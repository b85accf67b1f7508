#pragma once

#include "pareprop/models/model.h"
#include "pareprop/train/train_config.h"

namespace pareprop::train {

// Gives a new network the weights that `config` asks for: those of a file, or its own with another
// deviation. Throws what models::load_weights() throws.
void set_first_weights(models::Model& model, const TrainConfig& config);

}  // namespace pareprop::train
