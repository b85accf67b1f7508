#pragma once

#include <c10/core/Device.h>

#include <filesystem>

#include "pareprop/train/trained_run.h"

namespace pareprop::train {

struct PretrainedOptions {
  c10::Device device = at::kCPU;
  TrainConfig network = {};  // in its fields of the network: what the weights do not tell
  // Weights without a head, or with one for other classes, get a new one: for words, or for so many
  // classes of images (0: as many as they have).
  bool new_head = false;
  std::int64_t classes = 0;
  std::uint64_t seed = 0;  // of the new head
};

// The network of somebody's weights (see FirstWeights), as if it had been trained here: of their
// own sizes and classes, with what its inputs are made by. `config` has what describes the network,
// and usual values.
//
// Throws what FirstWeights throws, and std::invalid_argument for weights without a head where
// `options` ask for no new one, and for those whose network is not known.
TrainedRun load_pretrained(const std::filesystem::path& weights,
                           const PretrainedOptions& options = {});

// Changes the head so that its classes have the order of `classes`. Throws std::invalid_argument
// when they are not the classes of the run, saying which are not.
void put_classes_in_order(TrainedRun& run, const std::vector<std::string>& classes,
                          const std::string& data);

}  // namespace pareprop::train
