#pragma once

#include <cstdint>
#include <filesystem>

#include "pareprop/train/trained_run.h"

namespace pareprop::train {

// Reads inputs of a network from a safetensors file: "pixel_values" (images, channels, height,
// width), or "input_ids" (texts, tokens) and perhaps "attention_mask", 0 where there is padding,
// and "token_type_ids", all 0. Writes "logits" to another: (images, classes) or (texts, tokens,
// vocabulary). `batch` at a time. Returns how many images or texts there were.
//
// Throws std::invalid_argument for tensors that the network does not take, and what reading and
// writing throw.
std::int64_t score_file(const TrainedRun& run, const std::filesystem::path& inputs,
                        const std::filesystem::path& scores, std::int64_t batch);

}  // namespace pareprop::train
