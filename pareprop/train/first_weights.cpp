#include "pareprop/train/first_weights.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "pareprop/models/image_model.h"
#include "pareprop/models/registry.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/trained_run.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

// The fields of the network.
TrainConfig network_config(const models::Architecture& architecture) {
  const models::Overrides& sizes = architecture.sizes;
  TrainConfig config;
  config.model = architecture.model;
  config.plain = sizes.plain;
  config.depth = sizes.depths;
  config.width = sizes.width;
  config.heads = sizes.heads;
  config.mlp_ratio = sizes.mlp_ratio;
  config.patch = sizes.patch;
  config.window = sizes.window;
  config.image_size = sizes.image_size;
  config.positions = sizes.positions;
  config.embeddings = sizes.vocabulary;
  config.norm_eps = sizes.norm_eps;
  config.no_qkv_bias = sizes.no_qkv_bias;
  if (sizes.distillation != models::Distillation::none) {
    config.distillation = models::name(sizes.distillation);
  }
  if (sizes.encoder.value_or(models::Encoder::norm_first) != models::Encoder::norm_first) {
    config.encoder = models::name(*sizes.encoder);
  }
  config.class_token = sizes.class_token;
  config.dropout = sizes.dropout;
  config.drop_path = sizes.drop_path;
  return config;
}

fs::path tokenizer_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json"}) {
    if (fs::exists(folder / name)) return folder;
  }
  return {};
}

// What training writes beside the configuration tells its folder from those of others.
bool is_run_folder(const fs::path& folder) {
  return fs::exists(config_file(folder)) &&
         (fs::exists(classes_file(folder)) || fs::exists(tokenizer_folder(folder)));
}

std::vector<float> mean_of(const std::vector<float>& values) {
  const float sum = std::accumulate(values.begin(), values.end(), 0.0F);
  return {sum / static_cast<float>(values.size())};
}

void grey(data::ImageAugment& augment) {
  augment.mean = mean_of(augment.mean);
  augment.deviation = mean_of(augment.deviation);
}

}  // namespace

FirstWeights::FirstWeights(const fs::path& path) : pretrained_(path) {
  const fs::path folder = pretrained_.files().folder();
  if (pretrained_.names() == models::NamesOf::pareprop && is_run_folder(folder)) {
    read_run(folder);
    return;
  }
  const auto& architecture = pretrained_.architecture();
  // BERT's tokenizers have another algorithm, which is not here.
  const bool bert = architecture && architecture->sizes.encoder == models::Encoder::bert;
  if (!bert) tokenizer_ = tokenizer_in(folder);
  if (!architecture) return;
  network_ = network_config(*architecture);
  labels_ = architecture->labels;
  input_ = architecture->input;
}

void FirstWeights::read_run(const fs::path& run) {
  is_run_ = true;
  network_ = run_config(run);
  network_->model = model_of(*network_);
  if (fs::exists(tokenizer_folder(run))) {
    tokenizer_ = tokenizer_folder(run);
    return;
  }
  const RunClasses classes = read_classes(run);
  labels_ = classes.names;
  input_ = classes.input;
  run_shape_ = classes.shape;
  network_->image_size = classes.shape.image_size;
}

std::optional<models::Overrides> FirstWeights::told_by_shapes(const TrainConfig& config) const {
  if (pretrained_.names() != models::NamesOf::pareprop || is_run_) return std::nullopt;
  const std::string& model = config.model.empty() && network_ ? network_->model : config.model;
  return pretrained_.sizes_as(model, config.patch);
}

TrainConfig FirstWeights::complete(TrainConfig config) const {
  const std::string path = pretrained_.files().path().string();
  // Of weights of ours without their configuration, shapes do not tell all: their user knows it.
  if (auto sizes = told_by_shapes(config)) {
    if (config.model.empty()) config.model = network_->model;
    if (!config.ending.empty() && sizes->plain) {  // shapes are those of an ordinary network
      sizes->plain = false;
      sizes->class_token = config.model.starts_with("vit_");
    }
    return with_network_of_weights(std::move(config),
                                   network_config({.model = config.model, .sizes = *sizes}), path);
  }
  if (!network_) {
    if (!config.model.empty()) return config;
    throw FieldError("model", "the weights in " + path + " do not tell their network: name it");
  }
  const bool is_ours = pretrained_.names() == models::NamesOf::pareprop;
  if (is_ours && !is_run_ && !config.model.empty()) return config;  // of another family
  if (pretrained_.needs_heads() && config.heads.empty()) {
    throw FieldError("heads", "the weights in " + path +
                                  " do not tell the number of heads: name it, or put the model's "
                                  "config.json beside them");
  }
  return with_network_of_weights(std::move(config), *network_, path);
}

models::Overrides FirstWeights::sizes(const TrainConfig& config) const {
  models::Overrides sizes = overrides_of(config);
  sizes.vocabulary = config.embeddings;
  if (run_shape_) {
    sizes.classes = run_shape_->classes;
    sizes.channels = run_shape_->channels;
    return sizes;
  }
  const auto told = told_by_shapes(config);
  if (told || pretrained_.architecture()) {
    const models::Overrides& known = told ? *told : pretrained_.architecture()->sizes;
    sizes.classes = known.classes;
    sizes.channels = known.channels;
  }
  return sizes;
}

std::vector<std::string> FirstWeights::about() const {
  std::vector<std::string> lines;
  const std::string path = pretrained_.files().path().string();
  if (network_) {
    lines.push_back("weights of " + path + ", with the names of " +
                    std::string(models::title(pretrained_.names())) + ": " +
                    (network_->plain ? "a plain " : "a reversible ") + network_->model);
  }
  if (is_run_) return lines;
  if (!pretrained_.assumed().empty()) lines.push_back(pretrained_.assumed());
  if (const auto& known = pretrained_.architecture()) {
    lines.insert(lines.end(), known->notes.begin(), known->notes.end());
  }
  return lines;
}

std::optional<FirstWeights> first_weights(const TrainConfig& config) {
  if (config.weights.empty()) return std::nullopt;
  return FirstWeights(config.weights);
}

std::vector<std::int64_t> class_order(const std::vector<std::string>& classes,
                                      const std::vector<std::string>& labels) {
  if (classes == labels || classes.size() != labels.size()) return {};
  std::vector<std::int64_t> order;
  for (const std::string& name : classes) {
    const auto found = std::find(labels.begin(), labels.end(), name);
    if (found == labels.end()) return {};
    order.push_back(found - labels.begin());
  }
  // Two labels of the same name would leave others out.
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()
             ? order
             : std::vector<std::int64_t>();
}

void take_input(const models::ImageInput& input, std::int64_t channels,
                data::ImageAugment& augment) {
  augment.mean = input.mean;
  augment.deviation = input.deviation;
  augment.centre_share = input.centre_share;
  if (channels == 1) grey(augment);
}

TrainingData open_training_data(TrainConfig config, const std::optional<FirstWeights>& weights) {
  if (!weights) return open_data(config);
  const bool of_words = config.embeddings.has_value() || !weights->tokenizer().empty();
  if (names_text(config.data) && config.tokenizer.empty() && of_words) {
    if (weights->tokenizer().empty()) {
      throw FieldError("tokenizer", "the weights in " + config.weights +
                                        " were trained with one that is not beside them: name it");
    }
    config.tokenizer = weights->tokenizer().string();
  }
  TrainingData data = open_data(config);
  if (weights->input() && data.images) {
    take_input(*weights->input(), data.images->channels, data.images->augment);
  }
  return data;
}

void load_first_weights(const FirstWeights& weights, models::Model& model,
                        const std::vector<std::string>& classes,
                        const std::function<void(const std::string&)>& say) {
  const auto tell = [&](const std::string& what) {
    if (say) say(what);
  };
  for (const std::string& line : weights.about()) tell(line);
  models::AdaptOptions options;
  const auto& labels = weights.labels();
  if (!labels.empty() && !classes.empty() && labels != classes) {
    options.class_order = class_order(classes, labels);
    options.new_head = options.class_order.empty();
  }
  const models::Adapted adapted = weights.pretrained().load(model, options);
  for (const std::string& what : adapted.what) tell("adapted: " + what);
  if (!options.class_order.empty()) tell("adapted: classes put in the order of the data");
}

}  // namespace pareprop::train
