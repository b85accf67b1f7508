#include "pareprop/train/training_data.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "pareprop/models/image_model.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/weights.h"
#include "pareprop/train/first_weights.h"
#include "pareprop/train/model_for_data.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::train {
namespace {

using io::testing::message_of;

TrainConfig small_config(const std::string& model, const std::string& data) {
  TrainConfig config;
  config.model = model;
  config.data = data;
  config.depth = {1};
  config.width = 24;
  return config;
}

std::int64_t channels_of(const models::Model& model) {
  return dynamic_cast<const models::ImageModel&>(model).shape().channels;
}

// The digits are grey.
TEST(TrainingData, WeightsOfAGreyRunFitAGreyRunAndColouredOnesAreSummed) {
  const io::testing::TemporaryFolder folder;
  TrainConfig config = small_config("vit_tiny", "digits");
  const TrainingData data = open_data(config);
  for (const std::int64_t channels : {1, 3}) {
    models::Overrides change = overrides_of(config);
    change.classes = 10;
    change.channels = channels;
    models::save_weights(*models::make_model(config.model, change), folder / "weights");
    config.weights = (folder / "weights").string();
    const auto model = make_model(config, data, {});
    EXPECT_EQ(channels_of(*model), 1);
    std::string said;
    load_first_weights(*first_weights(config), *model, data.class_names(),
                       [&](const std::string& what) { said += what + "\n"; });
    EXPECT_EQ(said.find("patch weights of 3 colours summed for grey images") != said.npos,
              channels == 3)
        << said;
  }
}

TEST(TrainingData, AFolderWithoutWeightsIsNamed) {
  const io::testing::TemporaryFolder folder;
  TrainConfig config = small_config("vit_tiny", "digits");
  config.weights = folder.path().string();
  EXPECT_EQ(message_of<std::invalid_argument>([&] { first_weights(config); }),
            config.weights +
                " is a folder without weights; expected model.safetensors or "
                "model.safetensors.index.json in it");
}

TEST(TrainingData, AModelForTheOtherKindIsRefusedInWordsOfBoth) {
  const auto refusal = [](const char* model, const char* given) {
    const TrainConfig config = small_config(model, given);
    const TrainingData data = open_data(config);
    return message_of<std::invalid_argument>([&] { make_model(config, data, {}); });
  };
  EXPECT_EQ(refusal("roberta_base", "digits"),
            "the model roberta_base is for text, but the data 'digits' is images: choose another "
            "model, for example --model vit_small, or other data, for example --data persuasion");
  EXPECT_EQ(refusal("vit_tiny", "persuasion"),
            "the model vit_tiny is for images, but the data 'persuasion' is text: choose another "
            "model, for example --model roberta_base, or other data, for example --data digits");
}

TEST(TrainingData, PathsThatCannotBeWrittenAsJsonAreRefused) {
  TrainConfig config = small_config("vit_tiny", "folder:/tmp/caf\xe9");
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { check(config); }),
      R"(data: expected text in UTF-8, got 'folder:/tmp/caf\xe9'; rename the file or folder, )"
      "or make a link to it");
}

}  // namespace
}  // namespace pareprop::train
