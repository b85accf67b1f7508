#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "pareprop/io/safetensors.h"
#include "pareprop/models/model.h"

namespace pareprop::train {

// Trains the head alone in the first steps of a run. Parameters that wait get no gradient, so that
// the optimizer leaves them, their state and their step counts as they are.
class HeadFirst {
 public:
  // `trained`: all that the run trains, the same in all processes. The model outlives it.
  HeadFirst(models::Model& model, const io::NamedTensors& trained, std::int64_t head_steps);

  // Before the step that follows this one.
  void begin_step(std::int64_t step);

 private:
  models::Model& model_;
  std::set<std::string> trained_;
  const std::int64_t head_steps_;
  bool head_only_ = false;
};

}  // namespace pareprop::train
