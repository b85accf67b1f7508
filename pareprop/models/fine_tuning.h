#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pareprop/models/model.h"

namespace pareprop::models {

// Freezes the parameters that the patterns name: separated by commas, `*` standing for any
// characters. A pattern that begins with `!` takes what it names out again: "*,!head*" freezes all
// but the head.
//
// Throws std::invalid_argument for a pattern that names no parameter, naming the nearest ones, and
// when nothing is left to train.
void freeze(Model& model, std::string_view patterns);

// Whether the parameter is one of the output layers.
bool is_of_head(std::string_view parameter);

// Note [Layers of a network]
// Layer 0 is what comes before the first block: embeddings and positions. Layer i is block i,
// counted from 1 over all stages; a transition into a stage is a block of it, and so is what leads
// to it. What follows the last block of a stage belongs to that block. The last layer is the norm
// behind all blocks and the head.

// The layer of each parameter. `all` are the names of all parameters of the network. Throws
// std::invalid_argument for a network without parameters of blocks ("blocks.0.", or
// "stages.0.blocks.0.").
struct Layers {
  std::vector<int> of;  // each of the names
  int last = 0;
};
Layers layers_of(const std::vector<std::string>& names, const std::vector<std::string>& all);

// All of them, also those that are frozen.
std::vector<std::string> parameter_names(const Model& model);

}  // namespace pareprop::models
