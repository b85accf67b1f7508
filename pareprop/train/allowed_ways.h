#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pareprop/plan/joint_search.h"
#include "pareprop/train/train_config.h"

namespace pareprop::train {

// A way to train that a configuration allows beyond what it asks for.
struct AllowedWay {
  std::string flags;  // that ask for it
  TrainConfig config;
};
std::vector<AllowedWay> allowed_ways(const TrainConfig& config, const Allowed& allowed);

// The step of a configuration, as it is planned.
using ShapeOf = std::function<plan::StepShape(const TrainConfig&)>;

// The same ways, as the search for a plan takes them: their numbers are the same.
std::vector<plan::Departure> departures(const TrainConfig& config,
                                        const std::vector<AllowedWay>& ways,
                                        const ShapeOf& shape_of);

// The flags with which a configuration would fit in so many bytes, though it does not: the first
// that do of those that leave the batch and the network as they are. "--update inside would fit, in
// at most ..."; empty: there are none. `make` makes its network on the meta device.
std::string what_would_help(const TrainConfig& config, int processes, std::int64_t budget,
                            const plan::MakeNetwork& make, const ShapeOf& shape_of);

}  // namespace pareprop::train
