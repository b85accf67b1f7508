#include "pareprop/train/training_data.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "pareprop/data/text/text_batches.h"
#include "pareprop/models/image_model.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

bool has_text_files(const fs::path& folder) {
  std::error_code ignored;
  const auto files = fs::directory_iterator(folder, ignored);
  return std::any_of(begin(files), end(files),
                     [](const auto& entry) { return entry.path().extension() == ".txt"; });
}

// What was asked for must not be passed over in silence.
void check_applies(const TrainConfig& config, bool text) {
  constexpr const char* kOfImages[] = {"mixup", "cutmix", "erase", "label_smoothing", "strict"};
  constexpr const char* kOfText[] = {"tokenizer", "seq_len"};
  const auto given = fields(config), usual = fields({});
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].value == usual[i].value) continue;
    const auto is = [&](const char* key) { return given[i].key == key; };
    const bool of_images = std::any_of(std::begin(kOfImages), std::end(kOfImages), is);
    const bool of_text = std::any_of(std::begin(kOfText), std::end(kOfText), is);
    if (text ? of_images : of_text) {
      throw FieldError(given[i].key, std::string("it works only with ") +
                                         (text ? "images" : "text") + ", but " + config.data +
                                         " is " + (text ? "text" : "images"));
    }
  }
}

data::ImageAugment augment_of(const TrainConfig& config, const data::ImageData& images) {
  data::ImageAugment augment = images.augment;
  if (config.augment == "none") {
    augment = {.centre_share = augment.centre_share,
               .filter = augment.filter,
               .mean = augment.mean,
               .deviation = augment.deviation};
  }
  augment.erase = config.erase;
  return augment;
}

data::TextBatchesOptions text_options(const TrainConfig& config, const models::Model& model,
                                      data::Shard shard) {
  return {.batch = config.batch, .length = model.tokens(), .seed = config.seed, .shard = shard};
}

data::ImageBatchesOptions image_options(const TrainConfig& config, const data::ImageData& images,
                                        const models::Model& model, data::Shard shard) {
  const auto& shape = dynamic_cast<const models::ImageModel&>(model).shape();
  const int side = static_cast<int>(shape.image_size);
  return {.batch = config.batch,
          .input = {side, side},
          .channels = static_cast<int>(shape.channels),
          .seed = config.seed,
          .shard = shard,
          .augment = augment_of(config, images),
          .mixing = {.mixup = config.mixup,
                     .cutmix = config.cutmix,
                     .probability = config.mix_probability,
                     .label_smoothing = config.label_smoothing},
          .strict = config.strict};
}

}  // namespace

bool names_text(const std::string& spec) {
  if (spec == "persuasion" || spec.starts_with("text:")) return true;
  std::error_code ignored;
  return fs::is_regular_file(spec, ignored) || has_text_files(spec);
}

std::vector<std::string> TrainingData::class_names() const {
  return images ? images->train->class_names() : std::vector<std::string>();
}

std::vector<std::string> TrainingData::left_out() const {
  // The halves of one folder have left out the same.
  std::set<std::string> lines;
  const auto add = [&](const std::vector<std::string>& more) {
    lines.insert(more.begin(), more.end());
  };
  if (text) add(text->left_out);
  if (images) add(images->train->left_out());
  if (images) add(images->test->left_out());
  return {lines.begin(), lines.end()};
}

TrainingData open_data(const TrainConfig& config) {
  TrainingData data;
  const bool text = names_text(config.data);
  check_applies(config, text);
  if (text) {
    data.text = data::open_text(config.data,
                                {.tokenizer = config.tokenizer, .vocabulary = config.vocabulary});
  } else {
    data.images = data::open_images(config.data);
  }
  return data;
}

std::vector<std::string> BatchSets::skipped() const {
  std::vector<std::string> lines = left_out;
  for (const auto* set : {train_images.get(), test_images.get()}) {
    if (set == nullptr) continue;
    for (const data::SkippedImage& image : set->skipped()) lines.push_back(image.why);
  }
  return lines;
}

std::string left_out_text(const std::vector<std::string>& lines, const std::string& data) {
  constexpr std::size_t kShown = 5;
  const std::string one = names_text(data) ? "file" : "image";
  std::string text =
      std::to_string(lines.size()) + " " + (lines.size() == 1 ? one : one + "s") + " left out:";
  const std::size_t shown = std::min(lines.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i) text += "\n" + lines[i];
  if (shown < lines.size()) text += "\nand " + std::to_string(lines.size() - shown) + " more";
  return text;
}

BatchSets make_test_batches(const TrainConfig& config, const TrainingData& data,
                            const models::Model& model, data::Shard shard) {
  BatchSets sets;
  sets.left_out = data.left_out();
  if (data.text) {
    auto options = text_options(config, model, shard);
    options.training = false;
    sets.test =
        std::make_shared<data::TextBatches>(data.text->held_out, data.text->tokenizer, options);
    return sets;
  }
  auto options = image_options(config, *data.images, model, shard);
  options.training = false;
  sets.test = sets.test_images = std::make_shared<data::ImageBatches>(data.images->test, options);
  return sets;
}

BatchSets make_batches(const TrainConfig& config, const TrainingData& data,
                       const models::Model& model, data::Shard shard) {
  BatchSets sets = make_test_batches(config, data, model, shard);
  if (data.text) {
    sets.train = std::make_shared<data::TextBatches>(data.text->train, data.text->tokenizer,
                                                     text_options(config, model, shard));
  } else {
    sets.train = sets.train_images = std::make_shared<data::ImageBatches>(
        data.images->train, image_options(config, *data.images, model, shard));
  }
  return sets;
}

}  // namespace pareprop::train
