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

// The sizes of each family (models/vit_sizes.cpp and the other *_sizes.cpp).
std::vector<NamedModel> vit_sizes();
std::vector<NamedModel> swin_sizes();
std::vector<NamedModel> mvit_sizes();
std::vector<NamedModel> roberta_sizes();

// All names, in the order of `pareprop models`.
std::vector<std::string> model_names();

// Throws std::invalid_argument for an unknown name, listing the known ones, and for an override
// that the family does not have or that does not fit.
std::shared_ptr<Model> make_model(const std::string& name, const Overrides& overrides = {},
                                  const WeightOptions& weights = {});

// Adds your own architecture under a new name, for verify, bench and train. Throws
// std::invalid_argument if the name is taken. Not thread-safe: call it at the start of the program.
void register_model(const std::string& name, ModelFactory factory);

// A row of `pareprop models`. Allocates no weights.
struct ModelSummary {
  std::string name;
  std::int64_t parameters = 0;
  double gmacs = 0.0;  // forward, one sample
  std::int64_t tokens = 0;
  std::vector<int> stacks;                   // depth of each
  double activation_bytes_stored = 0.0;      // one sample
  double activation_bytes_reversible = 0.0;  // one sample

  // Bytes of weights, gradients and activations, for one sample in float32, reversible.
  double step_bytes() const;
  // The same, and the two moments of Adam.
  double train_bytes() const;
};
ModelSummary summarise(const std::string& name, const Overrides& overrides = {});

}  // namespace pareprop::models
