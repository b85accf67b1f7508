#include "pareprop/train/pretrained_run.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>

#include "pareprop/data/text/tokenizer_file.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/roberta.h"
#include "pareprop/ops/precision.h"
#include "pareprop/text/escape.h"
#include "pareprop/train/first_weights.h"
#include "pareprop/train/model_for_data.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

void take_input(const models::ImageInput& input, std::int64_t channels, TrainedRun& loaded) {
  loaded.augment.mean = input.mean;
  loaded.augment.deviation = input.deviation;
  loaded.augment.centre_share = input.centre_share;
  if (channels == 1) grey(loaded.augment);
  check_augment(loaded.augment);
}

}  // namespace

TrainedRun load_pretrained(const fs::path& path, c10::Device device) {
  const FirstWeights weights(path);
  if (weights.pretrained().names() == models::NamesOf::pareprop && !weights.is_run()) {
    throw std::invalid_argument(path.string() +
                                ": files with our own names do not tell their network; name the "
                                "folder of their run");
  }
  if (weights.pretrained().needs_heads()) {
    throw std::invalid_argument(path.string() +
                                ": the shapes do not tell the number of heads; put the model's "
                                "config.json beside the weights");
  }
  if (!weights.pretrained().has_head()) {
    throw std::invalid_argument(path.string() +
                                " has no head that gives scores; train one first: pareprop train "
                                "--weights " +
                                path.string() + " --data ...");
  }
  TrainedRun loaded;
  loaded.config = weights.complete({});
  models::Overrides change = overrides_of(loaded.config);
  const auto& known = weights.pretrained().architecture();
  if (known) loaded.one_class = known->one_class;
  if (weights.shape()) {
    change.classes = weights.shape()->classes;
    change.channels = weights.shape()->channels;
    change.image_size = weights.shape()->image_size;
    take_input(weights.input().value_or(models::ImageInput{{0.5F}, {0.5F}}),
               weights.shape()->channels, loaded);
    loaded.class_names = weights.labels();
  } else {
    if (known) change.classes = known->sizes.classes;
    loaded.class_names = weights.labels();
    loaded.tokenizer_folder = weights.tokenizer();
    if (!loaded.tokenizer_folder.empty()) {
      loaded.tokenizer = data::load_tokenizer(loaded.tokenizer_folder);
      change.vocabulary = vocabulary_of(loaded.config, *loaded.tokenizer);
    } else {
      change.vocabulary = loaded.config.embeddings;
    }
  }
  loaded.model = models::make_model(model_of(loaded.config), change, {.device = device});
  const auto adapted = weights.pretrained().load(*loaded.model);
  loaded.notes = weights.about();
  for (const std::string& what : adapted.what) loaded.notes.push_back("adapted: " + what);
  loaded.weights = "the weights of " + path.string();
  set_to_evaluate(*loaded.model, numerics_of(loaded.config));
  return loaded;
}

void put_classes_in_order(TrainedRun& run, const std::vector<std::string>& classes,
                          const std::string& data) {
  if (classes == run.class_names) return;
  const auto& shape = dynamic_cast<const models::ImageModel&>(*run.model).shape();
  if (run.class_names.empty() && static_cast<std::int64_t>(classes.size()) == shape.classes) return;
  const std::vector<std::int64_t> order = class_order(classes, run.class_names);
  if (order.empty()) {
    std::string unknown;
    for (const std::string& name : classes) {
      const auto& known = run.class_names;
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      unknown = "; the network does not know " + text::in_quotes(name);
      break;
    }
    throw std::invalid_argument("the " + std::to_string(classes.size()) + " classes of " + data +
                                " differ from the " + std::to_string(shape.classes) +
                                " classes of the run" + unknown +
                                "; choose other data with --data");
  }
  const c10::NoGradGuard guard;
  for (const auto& item : run.model->named_parameters()) {
    if (!item.key().starts_with("head.") && !item.key().starts_with("head_dist.")) continue;
    const at::Tensor rows = at::tensor(order).to(item.value().device());
    item.value().copy_(item.value().index_select(0, rows));
  }
  run.class_names = classes;
}

}  // namespace pareprop::train
