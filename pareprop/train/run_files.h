#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// Where a run's folder has what.
std::filesystem::path tokenizer_folder(const std::filesystem::path& run);
std::filesystem::path weights_file(const std::filesystem::path& run);

// Writes config.json, and what a network needs to be used without the data: classes.json with the
// names of classes and how images are normalised, or tokenizer/. Makes the folder.
void write_run_files(const std::filesystem::path& run, const TrainConfig& config,
                     const TrainingData& data, const models::Model& model);

// A trained network of a run, with what its inputs are made by.
struct TrainedRun {
  TrainConfig config;
  std::shared_ptr<models::Model> model;      // with the run's weights, in evaluation mode
  std::vector<std::string> class_names;      // of images
  data::ImageAugment augment;                // of images
  std::optional<data::Tokenizer> tokenizer;  // of text
};

// Throws std::invalid_argument when the folder is not that of a run that has ended, or its files do
// not fit each other.
TrainedRun load_run(const std::filesystem::path& run);

}  // namespace pareprop::train
