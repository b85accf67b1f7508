#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/data/batches.h"
#include "pareprop/data/images/image_batches.h"
#include "pareprop/data/images/open_images.h"
#include "pareprop/data/text/text_data.h"
#include "pareprop/models/model.h"
#include "pareprop/train/train_config.h"

namespace pareprop::train {

// Tokens of a sequence where the configuration does not say.
inline constexpr std::int64_t kTextLength = 128;

// What `config.data` names: images or text.
struct TrainingData {
  std::optional<data::ImageData> images;
  std::optional<data::TextData> text;

  // Of images; none for text.
  std::vector<std::string> class_names() const;
  // One line each: folders and files that could not be read when the data was opened.
  std::vector<std::string> left_out() const;
};

// Whether `spec`, as --data takes it, names text; what does not names images.
bool names_text(const std::string& spec);

// Throws what open_images() and open_text() throw.
TrainingData open_data(const TrainConfig& config);

struct BatchSets {
  std::shared_ptr<const data::Batches> train, test;
  std::shared_ptr<const data::ImageBatches> train_images, test_images;  // the same; null for text

  std::vector<std::string> left_out = {};  // TrainingData::left_out()

  // One line each: what could not be read so far, images and what `left_out` has.
  std::vector<std::string> skipped() const;
};

// "12 images left out:", the first five, and how many more there are; each in a line of its own.
// REQUIRES: `lines` has one at least.
std::string left_out_text(const std::vector<std::string>& lines, const std::string& data);

// Those of evaluation only. REQUIRES: `model` is of make_model().
BatchSets make_test_batches(const TrainConfig& config, const TrainingData& data,
                            const models::Model& model, data::Shard shard);
// All.
BatchSets make_batches(const TrainConfig& config, const TrainingData& data,
                       const models::Model& model, data::Shard shard);

}  // namespace pareprop::train
