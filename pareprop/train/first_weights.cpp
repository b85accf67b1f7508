#include "pareprop/train/first_weights.h"

#include <c10/core/GradMode.h>

#include "pareprop/models/weights.h"

namespace pareprop::train {

void set_first_weights(models::Model& model, const TrainConfig& config) {
  if (!config.weights.empty()) {
    models::load_weights(model, io::SafetensorsFile(config.weights));
  } else if (config.initial_std > 0.0) {
    constexpr double kOfModels = 0.02;
    c10::NoGradGuard no_grad;
    for (auto& parameter : model.parameters()) {
      if (parameter.dim() == 2) parameter.mul_(config.initial_std / kOfModels);
    }
  }
}

}  // namespace pareprop::train
