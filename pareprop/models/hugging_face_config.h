#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "pareprop/io/tensor_files.h"
#include "pareprop/models/architecture.h"
#include "pareprop/models/config_file.h"
#include "pareprop/models/model.h"

namespace pareprop::models {

// The kind of model that config.json of Hugging Face names (its `model_type`). Throws
// std::invalid_argument for one that is not supported, naming it and the nearest that is.
std::string supported_type(const ConfigFile& config);

// The network that config.json describes, with weights that tell `told`. Throws
// std::invalid_argument, naming the key, for what networks here do not have, and where config.json
// contradicts the weights.
Architecture read_hugging_face(const ConfigFile& config, const Told& told,
                               const std::string& weights);

// What preprocessor_config.json in the folder says; what is usual for the kind of model where there
// is none. None for text.
std::optional<ImageInput> read_preprocessor(const std::filesystem::path& folder,
                                            const std::string& model_type);

// config.json and preprocessor_config.json for the network under hugging_face_names(). Throws
// std::invalid_argument for networks that transformers does not have.
std::string hugging_face_config(const Model& model, const std::vector<std::string>& labels,
                                Problem problem = Problem::one_class);
std::string hugging_face_preprocessor(const Model& model, const ImageInput& input);

}  // namespace pareprop::models
