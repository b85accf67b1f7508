#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pareprop/models/layers.h"
#include "pareprop/models/model.h"
#include "pareprop/models/overrides.h"

namespace pareprop::models {

// A named configuration of a family.
using ModelFactory =
    std::function<std::shared_ptr<Model>(const Overrides& overrides, const WeightOptions& weights)>;
struct NamedModel {
  std::string name;
  ModelFactory make;
};

// The sizes of each family (models/vit_sizes.cpp and its like).
std::vector<NamedModel> vit_sizes();
std::vector<NamedModel> swin_sizes();
std::vector<NamedModel> mvit_sizes();
std::vector<NamedModel> roberta_sizes();

// In the order they are listed.
std::vector<std::string> model_names();

// Throws std::invalid_argument listing the known names when there is none such, or naming what does
// not fit in the overrides: also one that the family does not have.
std::shared_ptr<Model> make_model(const std::string& name, const Overrides& overrides = {},
                                  const WeightOptions& weights = {});

// Makes a model known under another name: one's own architecture in verify, bench and train. Throws
// std::invalid_argument when the name is taken. Not thread-safe: at the start of the program.
void register_model(const std::string& name, ModelFactory factory);

// What `pareprop models` tells of a model. Allocates no weights.
struct ModelSummary {
  std::string name;
  std::int64_t parameters = 0;
  double gmacs = 0.0;  // forward, one sample
  std::int64_t tokens = 0;
  std::vector<int> stacks;                   // depth of each
  double activation_bytes_stored = 0.0;      // one sample
  double activation_bytes_reversible = 0.0;  // one sample

  // Of one sample in float32, reversible: weights, gradients and activations.
  double step_bytes() const;
  // The same with the two moments of Adam.
  double train_bytes() const;
};
ModelSummary summarise(const std::string& name, const Overrides& overrides = {});

}  // namespace pareprop::models
