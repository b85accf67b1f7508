#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/models/architecture.h"
#include "pareprop/models/image_model.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// What config.json of a run says. Throws std::invalid_argument when it is not there, or not ours.
TrainConfig run_config(const std::filesystem::path& run);

// The same of a folder that is to be trained in: throws with what to do about it.
TrainConfig config_of_begun_run(const std::filesystem::path& run);

// What classes.json says: names of classes, and how images become inputs.
struct RunClasses {
  std::vector<std::string> names;
  models::ImageInput input;
  models::ImageShape shape;
};
// Throws std::invalid_argument when it is not there, or damaged.
RunClasses read_classes(const std::filesystem::path& run);

// Writes classes.json.
void write_classes(const std::filesystem::path& run, const RunClasses& classes);

// Writes config.json, and what a network needs to be used without the data: classes.json with the
// names of classes and how images are normalised, or tokenizer/. Makes the folder.
void write_run_files(const std::filesystem::path& run, const TrainConfig& config,
                     const TrainingData& data, const models::Model& model);

enum class WhichWeights { best, last };

// A trained network of a run, with what its inputs are made by.
struct TrainedRun {
  TrainConfig config;
  std::shared_ptr<models::Model> model;  // in evaluation mode
  std::string weights;                   // "the best weights, of step 200 (best.safetensors)"
  std::vector<std::string> class_names;  // empty: they have no names
  models::Problem problem = models::Problem::one_class;
  data::ImageAugment augment;                // of images
  bool knows_input = true;                   // `augment` is how they were normalised in training
  std::optional<data::Tokenizer> tokenizer;  // of text
  std::filesystem::path tokenizer_folder;    // where it is
  std::vector<std::string> notes;            // what to know of the weights, a line each
};

// Throws std::invalid_argument for a network whose scores mean something else.
void expect_one_class(const TrainedRun& run);

// Why a run of text has no tokenizer, and what to do; empty: it has one, or is of images.
std::string lacks_tokenizer(const TrainedRun& run);

// From now on the network only evaluates.
void set_to_evaluate(models::Model& model, const StackOptions& numerics);

// The weights with the lowest evaluation loss, or the last ones: those that training ended with or,
// if it has not ended, of the newest checkpoint. Where nothing was evaluated yet the last are the
// best. Throws std::invalid_argument when the folder is not that of a run with weights, or its
// files do not fit each other, std::runtime_error for damaged weights. The network is on `device`.
TrainedRun load_run(const std::filesystem::path& run, WhichWeights which = WhichWeights::best,
                    c10::Device device = at::kCPU);

}  // namespace pareprop::train
