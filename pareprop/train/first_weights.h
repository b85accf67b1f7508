#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/models/model.h"
#include "pareprop/models/pretrained.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// The weights that a run begins with (--weights), and what is known with them: the network, names
// of classes, how images were normalised, the tokenizer.
class FirstWeights {
 public:
  // A file or folder as models::Pretrained takes it, or the folder of a run. Throws what that
  // throws.
  explicit FirstWeights(const std::filesystem::path& path);

  // With the network of these weights where `config` does not name it. Throws FieldError where
  // `config` contradicts them, or has to say more than the weights tell.
  TrainConfig complete(TrainConfig config) const;

  // Of classes; empty: they have no names.
  const std::vector<std::string>& labels() const { return labels_; }
  const std::optional<models::ImageInput>& input() const { return input_; }
  // Where the tokenizer is that the weights were trained with; empty: not known.
  const std::filesystem::path& tokenizer() const { return tokenizer_; }
  const models::Pretrained& pretrained() const { return pretrained_; }

  // Those of the weights' own network, with its classes and channels. REQUIRES: `config` is
  // complete.
  models::Overrides sizes(const TrainConfig& config) const;
  bool is_run() const { return is_run_; }

  // One line each: whose names they have and what was taken for granted.
  std::vector<std::string> about() const;

 private:
  void read_run(const std::filesystem::path& run);
  // What shapes tell of the network that `config` names, where nothing else tells it.
  std::optional<models::Overrides> told_by_shapes(const TrainConfig& config) const;

  models::Pretrained pretrained_;
  bool is_run_ = false;
  std::optional<TrainConfig> network_;           // in its fields of the network; none: not known
  std::optional<models::ImageShape> run_shape_;  // of a run on images
  std::vector<std::string> labels_;
  std::optional<models::ImageInput> input_;
  std::filesystem::path tokenizer_;
};

// Those that the configuration asks for; none: its network begins with random ones.
std::optional<FirstWeights> first_weights(const TrainConfig& config);

// For each of `classes` its number among `labels`; empty: they are the same, or not the same names
// in another order.
std::vector<std::int64_t> class_order(const std::vector<std::string>& classes,
                                      const std::vector<std::string>& labels);

// Images are normalised as `input` says, in training and evaluation, and evaluation sees its part
// of the middle. Grey images are normalised by the means over the colours.
void take_input(const models::ImageInput& input, std::int64_t channels,
                data::ImageAugment& augment);

// The data that `config` names, seen as `take_input` does and divided into tokens as it was for
// these weights. Throws what open_data() throws, and FieldError where they need a tokenizer that is
// not known.
TrainingData open_training_data(TrainConfig config, const std::optional<FirstWeights>& weights);

// Gives a new network its first weights, adapted to its sizes and to the classes of the data; each
// change is told to `say` (may be null). Throws what models::load_adapted() throws.
void load_first_weights(const FirstWeights& weights, models::Model& model,
                        const std::vector<std::string>& classes,
                        const std::function<void(const std::string&)>& say);

}  // namespace pareprop::train
