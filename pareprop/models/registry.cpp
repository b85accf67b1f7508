#include "pareprop/models/registry.h"

#include <algorithm>
#include <stdexcept>

#include "pareprop/models/cost.h"
#include "pareprop/ops/device_arithmetic.h"

namespace pareprop::models {
namespace {

std::vector<NamedModel>& models() {
  static std::vector<NamedModel> all = [] {
    std::vector<NamedModel> list;
    for (auto& family : {vit_sizes(), swin_sizes(), mvit_sizes(), roberta_sizes()}) {
      list.insert(list.end(), family.begin(), family.end());
    }
    return list;
  }();
  return all;
}

auto find(const std::string& name) {
  return std::find_if(models().begin(), models().end(),
                      [&](const NamedModel& model) { return model.name == name; });
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const NamedModel& model : models()) names.push_back(model.name);
  return names;
}

std::shared_ptr<Model> make_model(const std::string& name, const Overrides& overrides,
                                  const WeightOptions& weights) {
  check_limits(overrides);
  // fp32 means float32: who verifies gradients must be able to trust them.
  if (!weights.device.is_cpu() && !weights.device.is_meta()) set_device_arithmetic({.tf32 = false});
  const auto found = find(name);
  if (found != models().end()) return found->make(overrides, weights);
  std::string known;
  for (const NamedModel& model : models()) known += (known.empty() ? "" : ", ") + model.name;
  throw std::invalid_argument("unknown model '" + name + "': expected one of " + known);
}

void register_model(const std::string& name, ModelFactory factory) {
  if (find(name) != models().end()) {
    throw std::invalid_argument("model '" + name + "' already exists: choose another name");
  }
  models().push_back({name, std::move(factory)});
}

double ModelSummary::step_bytes() const {
  return 2.0 * sizeof(float) * static_cast<double>(parameters) + activation_bytes_reversible;
}
double ModelSummary::train_bytes() const {
  return step_bytes() + 2.0 * sizeof(float) * static_cast<double>(parameters);
}

ModelSummary summarise(const std::string& name, const Overrides& overrides) {
  const auto model = make_model(name, overrides, {.device = at::kMeta});
  const Cost cost = cost_of(*model);
  ModelSummary summary{.name = name,
                       .parameters = model->parameter_count(),
                       .gmacs = cost.macs / 1e9,
                       .tokens = model->tokens(),
                       .stacks = {},
                       .activation_bytes_stored = cost.activation_bytes_stored,
                       .activation_bytes_reversible = cost.activation_bytes_reversible};
  for (const Stack& stack : model->stacks()) summary.stacks.push_back(stack->depth());
  return summary;
}

}  // namespace pareprop::models
