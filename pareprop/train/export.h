#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "pareprop/train/trained_run.h"

namespace pareprop::train {

enum class ExportNames { hugging_face, timm, own };
// "hugging-face", "timm" or "own". Throws std::invalid_argument.
ExportNames parse_export_names(std::string_view word);

// Writes a folder that other programs load: model.safetensors and config.json; for Hugging Face
// also preprocessor_config.json or the files of the tokenizer. With our own names it is the folder
// of a run. The folder is whole or not there: it is written beside its place and renamed.
//
// Throws std::invalid_argument when the folder is there and not empty, and for a network that the
// others do not have, with what to do; std::system_error for files.
void export_run(const TrainedRun& run, const std::filesystem::path& folder, ExportNames names);

}  // namespace pareprop::train
