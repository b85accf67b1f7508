#include "pareprop/train/head_first.h"

#include "pareprop/models/fine_tuning.h"

namespace pareprop::train {

HeadFirst::HeadFirst(models::Model& model, const io::NamedTensors& trained, std::int64_t head_steps)
    : model_(model), head_steps_(head_steps) {
  for (const auto& [name, parameter] : trained) trained_.insert(name);
}

void HeadFirst::begin_step(std::int64_t step) {
  const bool head_only = step < head_steps_;
  if (head_only == head_only_) return;
  head_only_ = head_only;
  model_.train_only([&](const std::string& name) {
    return trained_.contains(name) && (!head_only || models::is_of_head(name));
  });
}

}  // namespace pareprop::train
