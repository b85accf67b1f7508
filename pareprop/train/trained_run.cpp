#include "pareprop/train/trained_run.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "pareprop/data/text/tokenizer_file.h"
#include "pareprop/io/atomic_file.h"
#include "pareprop/io/checksum.h"
#include "pareprop/io/input_file.h"
#include "pareprop/io/json.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/roberta.h"
#include "pareprop/models/weights.h"
#include "pareprop/ops/precision.h"
#include "pareprop/train/best_weights.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/ema.h"
#include "pareprop/train/run_folder.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Of all but itself. Not in the files of earlier versions.
constexpr const char* kChecksum = "xxh64";

std::string checksum_without(nlohmann::json file) {
  file.erase(kChecksum);
  io::Checksum sum;
  sum.update(file.dump());
  return io::hex(sum.value());
}

// A file of the run's folder, and not a link to one elsewhere.
std::string read_text(const fs::path& path) {
  try {
    return io::read_text_file(path, {.within = path.parent_path()});
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(std::string(error.what()) +
                                ": expected the folder of a training run");
  }
}

void take_classes(const RunClasses& classes, TrainedRun& loaded, models::Overrides& change) {
  loaded.class_names = classes.names;
  loaded.augment.mean = classes.input.mean;
  loaded.augment.deviation = classes.input.deviation;
  loaded.augment.centre_share = classes.input.centre_share;
  change.image_size = classes.shape.image_size;
  change.channels = classes.shape.channels;
  change.classes = classes.shape.classes;
}

std::string origin_text(const std::string& what, const std::optional<WeightsOf>& origin,
                        const fs::path& file) {
  return "the " + what + " weights" + (origin ? ", of step " + std::to_string(origin->step) : "") +
         " (" + file.filename().string() + ")";
}

// Averaged where there is an average.
std::string load_newest_checkpoint(const fs::path& run, const TrainConfig& config,
                                   models::Model& model) {
  const auto search = newest_whole(checkpoint_folder(run));
  if (!search.newest) {
    throw std::invalid_argument(run.string() +
                                " has neither model.safetensors nor a complete checkpoint");
  }
  const fs::path& folder = search.newest->folder;
  models::load_weights(model, io::SafetensorsFile(folder / "weights.safetensors", folder));
  if (const fs::path averages = folder / "ema.safetensors"; fs::exists(averages)) {
    Ema average(models::trained_parameters(model), config.ema);
    average.load_state(io::SafetensorsFile(averages, folder));
    average.swap();
  }
  return origin_text("last", WeightsOf{.step = search.newest->state.step}, folder);
}

std::string load_weights_of_run(const fs::path& run, const TrainConfig& config,
                                models::Model& model, WhichWeights which) {
  if (const fs::path best = best_weights_file(run);
      which == WhichWeights::best && fs::exists(best)) {
    return origin_text("best", load_run_weights(model, best), best);
  }
  if (const fs::path last = weights_file(run); fs::exists(last)) {
    return origin_text("last", load_run_weights(model, last), last);
  }
  return load_newest_checkpoint(run, config, model);
}

}  // namespace

TrainConfig run_config(const fs::path& run) {
  TrainConfig config;
  const fs::path path = config_file(run);
  const std::string text = read_text(path);
  apply_json(config, text, path.string());
  // Training writes all fields; an object without any, such as {}, is of another program.
  const nlohmann::json whole = io::parse_json(text, path.string());
  for (const char* key : {"model", "data", "out"}) {
    if (whole.contains(key)) continue;
    throw std::invalid_argument(path.string() + ": the key '" + key +
                                "' is missing; expected the configuration of a training run");
  }
  return config;
}

RunClasses read_classes(const fs::path& run) {
  const fs::path path = classes_file(run);
  RunClasses classes;
  try {
    const nlohmann::json whole = io::parse_json(read_text(path), path.string());
    classes.names = whole.at("classes").get<std::vector<std::string>>();
    classes.input.mean = whole.at("mean").get<std::vector<float>>();
    classes.input.deviation = whole.at("deviation").get<std::vector<float>>();
    classes.input.centre_share = whole.at("centre_share").get<double>();
    classes.shape.image_size = whole.at("image_size").get<std::int64_t>();
    classes.shape.channels = whole.at("channels").get<std::int64_t>();
    classes.shape.classes = static_cast<std::int64_t>(classes.names.size());
    if (whole.contains(kChecksum) && whole[kChecksum] != checksum_without(whole)) {
      throw std::invalid_argument(
          path.string() +
          ": the checksum does not match the content: the file was damaged or edited");
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(path.string() + ": " + io::json_fault(error));
  }
  data::ImageAugment augment;
  augment.mean = classes.input.mean;
  augment.deviation = classes.input.deviation;
  augment.centre_share = classes.input.centre_share;
  check_augment(augment);
  return classes;
}

TrainConfig config_of_begun_run(const fs::path& run) {
  try {
    return run_config(run);
  } catch (const std::exception& error) {
    throw std::invalid_argument(run.string() + " has files that do not belong to a training run (" +
                                error.what() +
                                "): move them away, or choose another folder with --out");
  }
}

void write_run_files(const fs::path& run, const TrainConfig& config, const TrainingData& data,
                     const models::Model& model) {
  fs::create_directories(run);
  io::write_file(config_file(run), to_json(config));
  if (data.text) {
    save_tokenizer(data.text->tokenizer, tokenizer_folder(run));
    return;
  }
  const data::ImageAugment& augment = data.images->augment;
  write_classes(run, {.names = data.class_names(),
                      .input = {augment.mean, augment.deviation, augment.centre_share},
                      .shape = dynamic_cast<const models::ImageModel&>(model).shape()});
}

void write_classes(const fs::path& run, const RunClasses& classes) {
  ordered_json whole = {{"classes", classes.names},
                        {"image_size", classes.shape.image_size},
                        {"channels", classes.shape.channels},
                        {"mean", classes.input.mean},
                        {"deviation", classes.input.deviation},
                        {"centre_share", classes.input.centre_share}};
  whole[kChecksum] = checksum_without(whole);
  io::write_file(classes_file(run), whole.dump(2) + "\n");
}

std::string lacks_tokenizer(const TrainedRun& run) {
  if (run.tokenizer || dynamic_cast<const models::ImageModel*>(run.model.get())) return "";
  const auto* const text = dynamic_cast<const models::RobertaBase*>(run.model.get());
  return text != nullptr && text->config().encoder == models::Encoder::bert
             ? "BERT's tokenizers (WordPiece) are not read here: give token ids to eval --input"
             : "there is no tokenizer beside " + run.weights + ": put its tokenizer.json there";
}

void expect_one_class(const TrainedRun& run) {
  if (run.problem == models::Problem::one_class) return;
  throw std::invalid_argument(
      run.weights +
      " give numbers (a regression), or several classes at once: expected those of a network that "
      "chooses one class; its scores are given by eval --input, and train gives it a head that "
      "does");
}

void set_to_evaluate(models::Model& model, const StackOptions& numerics) {
  model.set_options(numerics);
  model.set_mode(Mode::stored);
  model.eval();
}

TrainedRun load_run(const fs::path& run, WhichWeights which, c10::Device device) {
  TrainedRun loaded;
  loaded.config = run_config(run);
  models::Overrides change = overrides_of(loaded.config);
  if (fs::exists(tokenizer_folder(run))) {
    check_folder_of_run(tokenizer_folder(run));
    loaded.tokenizer_folder = tokenizer_folder(run);
    loaded.tokenizer = data::load_saved_tokenizer(loaded.tokenizer_folder);
    change.vocabulary = vocabulary_of(loaded.config, *loaded.tokenizer);
    change.length = loaded.config.seq_len.value_or(kTextLength);
  } else {
    take_classes(read_classes(run), loaded, change);
  }
  const StackOptions numerics = numerics_of(loaded.config);
  loaded.model = models::make_model(model_of(loaded.config), change,
                                    {.dtype = stream_dtype(numerics.precision), .device = device});
  loaded.weights = load_weights_of_run(run, loaded.config, *loaded.model, which);
  set_to_evaluate(*loaded.model, numerics);
  return loaded;
}

}  // namespace pareprop::train
