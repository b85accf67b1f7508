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

std::string checksum_of(nlohmann::json json) {
  json.erase(kChecksum);
  io::Checksum sum;
  sum.update(json.dump());
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

void load_classes(const fs::path& run, TrainedRun& loaded, models::Overrides& change) {
  const fs::path path = classes_file(run);
  try {
    const nlohmann::json json = io::parse_json(read_text(path), path.string());
    loaded.class_names = json.at("classes").get<std::vector<std::string>>();
    loaded.augment.mean = json.at("mean").get<std::vector<float>>();
    loaded.augment.deviation = json.at("deviation").get<std::vector<float>>();
    loaded.augment.centre_share = json.at("centre_share").get<double>();
    change.image_size = json.at("image_size").get<std::int64_t>();
    change.channels = json.at("channels").get<std::int64_t>();
    change.classes = static_cast<std::int64_t>(loaded.class_names.size());
    if (json.contains(kChecksum) && json[kChecksum] != checksum_of(json)) {
      throw std::invalid_argument(
          path.string() +
          ": the checksum does not match the content: the file was damaged or edited");
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(path.string() + ": " + io::json_fault(error));
  }
  check_augment(loaded.augment);
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
  const nlohmann::json json = io::parse_json(text, path.string());
  for (const char* key : {"model", "data", "out"}) {
    if (json.contains(key)) continue;
    throw std::invalid_argument(path.string() + ": the key '" + key +
                                "' is missing; expected the configuration of a training run");
  }
  return config;
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
  const auto& shape = dynamic_cast<const models::ImageModel&>(model).shape();
  ordered_json json = {{"classes", data.class_names()},
                       {"image_size", shape.image_size},
                       {"channels", shape.channels},
                       {"mean", data.images->augment.mean},
                       {"deviation", data.images->augment.deviation},
                       {"centre_share", data.images->augment.centre_share}};
  json[kChecksum] = checksum_of(json);
  io::write_file(classes_file(run), json.dump(2) + "\n");
}

TrainedRun load_run(const fs::path& run, WhichWeights which, c10::Device device) {
  TrainedRun loaded;
  loaded.config = run_config(run);
  models::Overrides change = overrides_of(loaded.config);
  if (fs::exists(tokenizer_folder(run))) {
    check_folder_of_run(tokenizer_folder(run));
    loaded.tokenizer = data::load_saved_tokenizer(tokenizer_folder(run));
    change.vocabulary = loaded.tokenizer->size();
    change.length = loaded.config.seq_len.value_or(kTextLength);
  } else {
    load_classes(run, loaded, change);
  }
  const StackOptions numerics = numerics_of(loaded.config);
  loaded.model = models::make_model(loaded.config.model, change,
                                    {.dtype = stream_dtype(numerics.precision), .device = device});
  loaded.weights = load_weights_of_run(run, loaded.config, *loaded.model, which);
  loaded.model->set_options(numerics);
  loaded.model->set_mode(Mode::stored);
  loaded.model->eval();
  return loaded;
}

}  // namespace pareprop::train
