#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/train/trained_run.h"

namespace pareprop::train {

struct Guess {
  std::string name;  // of a class, or the text of a token
  double probability = 0.0;
};

// The `top` likeliest classes of an image file. Throws std::runtime_error when it cannot be read,
// std::invalid_argument when the run is of text, or its network does not choose one class.
std::vector<Guess> predict_image(const TrainedRun& run, const std::filesystem::path& file, int top);

// The `top` likeliest tokens for each "<mask>" in the text, in order; of a network for classes of
// texts, the likeliest of those. Throws std::invalid_argument when there is no mask to guess, when
// the text is too long for the network or not UTF-8, when the run is of images, and when its
// network does not choose one class.
std::vector<std::vector<Guess>> predict_text(const TrainedRun& run, std::string_view text, int top);

}  // namespace pareprop::train
