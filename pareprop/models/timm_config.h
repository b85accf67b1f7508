#pragma once

#include <string>
#include <vector>

#include "pareprop/models/architecture.h"
#include "pareprop/models/config_file.h"
#include "pareprop/models/model.h"

namespace pareprop::models {

// The network that timm's config.json names ("architecture"), with weights that tell `told`. Throws
// std::invalid_argument for an architecture that is not supported, naming it and the nearest that
// is; for arguments (model_args) that networks here do not have; and where config.json contradicts
// the weights.
Architecture read_timm(const ConfigFile& config, const Told& told, const std::string& weights);

// config.json for the network under timm_names(), for timm.create_model("local-dir:FOLDER"). Throws
// std::invalid_argument for networks that timm does not have.
std::string timm_config(const Model& model, const std::vector<std::string>& labels,
                        const ImageInput& input);

}  // namespace pareprop::models
