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

// Whether the weights keep their head. Throws where they have none and none is asked for.
bool keeps_head(const FirstWeights& weights, const models::Overrides& own, bool is_text,
                const PretrainedOptions& options) {
  const bool has_head = weights.pretrained().has_head();
  if (!options.new_head) {
    if (has_head) return true;
    const std::string path = weights.pretrained().files().path().string();
    throw std::invalid_argument(path +
                                " has no head that gives scores; train one first: pareprop train "
                                "--weights " +
                                path + " --data ...");
  }
  if (is_text) return has_head;
  if (!has_head && options.classes == 0) {
    throw FieldError("classes", weights.pretrained().files().path().string() +
                                    " has no head that gives scores: say for how many classes it "
                                    "gets a new one");
  }
  return has_head && (options.classes == 0 || options.classes == own.classes);
}

}  // namespace

TrainedRun load_pretrained(const fs::path& path, const PretrainedOptions& options) {
  const FirstWeights weights(path);
  TrainedRun loaded;
  loaded.config = weights.complete(options.network);
  models::Overrides change = weights.sizes(loaded.config);
  const auto shapes = models::make_model(model_of(loaded.config), change, {.device = at::kMeta});
  const bool is_text = dynamic_cast<const models::ImageModel*>(shapes.get()) == nullptr;
  const bool same_head = keeps_head(weights, change, is_text, options);
  loaded.notes = weights.about();
  if (same_head) {
    loaded.class_names = weights.labels();
    if (const auto& known = weights.pretrained().architecture()) loaded.problem = known->problem;
  }
  if (is_text) {
    loaded.tokenizer_folder = weights.tokenizer();
    if (!loaded.tokenizer_folder.empty()) {
      loaded.tokenizer = data::load_tokenizer(loaded.tokenizer_folder);
      change.vocabulary = vocabulary_of(loaded.config, *loaded.tokenizer);
    }
  } else if (!same_head && options.classes > 0) {
    change.classes = options.classes;
  }
  loaded.model = models::make_model(model_of(loaded.config), change,
                                    {.device = options.device, .seed = options.seed});
  if (const auto* image = dynamic_cast<const models::ImageModel*>(loaded.model.get())) {
    loaded.knows_input = weights.input().has_value();
    take_input(weights.input().value_or(models::ImageInput{{0.5F}, {0.5F}}),
               image->shape().channels, loaded.augment);
    check_augment(loaded.augment);
    if (!loaded.knows_input) {
      loaded.notes.emplace_back(
          "no file tells how images were normalised: eval --data does as with data of its own, all "
          "else takes the mean 0.5 and the deviation 0.5");
    }
  }
  const auto adapted = weights.pretrained().load(*loaded.model);
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
