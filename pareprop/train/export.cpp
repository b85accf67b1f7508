#include "pareprop/train/export.h"

#include <unistd.h>

#include <functional>
#include <stdexcept>

#include "pareprop/data/text/tokenizer_file.h"
#include "pareprop/io/atomic_file.h"
#include "pareprop/models/hugging_face.h"
#include "pareprop/models/hugging_face_config.h"
#include "pareprop/models/roberta.h"
#include "pareprop/models/timm.h"
#include "pareprop/models/timm_config.h"
#include "pareprop/models/weights.h"
#include "pareprop/train/run_folder.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

models::ImageInput input_of(const TrainedRun& run) {
  return {run.augment.mean, run.augment.deviation, run.augment.centre_share};
}

bool is_text(const TrainedRun& run) {
  return dynamic_cast<const models::ImageModel*>(run.model.get()) == nullptr;
}

void write_hugging_face(const TrainedRun& run, const fs::path& folder) {
  const models::Model& model = *run.model;
  io::write_file(folder / "config.json",
                 models::hugging_face_config(model, run.class_names, run.problem));
  if (!is_text(run)) {
    io::write_file(folder / "preprocessor_config.json",
                   models::hugging_face_preprocessor(model, input_of(run)));
  } else if (run.tokenizer) {
    data::save_tokenizer(*run.tokenizer, folder);
  }
  models::save_weights(model, folder / "model.safetensors", models::hugging_face_names(model));
}

void write_timm(const TrainedRun& run, const fs::path& folder) {
  const models::Model& model = *run.model;
  const models::NameMap names = models::timm_names(model);
  io::write_file(folder / "config.json",
                 models::timm_config(model, run.class_names, input_of(run)));
  models::save_weights(model, folder / "model.safetensors", names);
}

void write_own(const TrainedRun& run, const fs::path& folder) {
  if (models::classifies_texts(*run.model)) {
    throw std::invalid_argument(
        "the folder of a run is for images or for text with words to guess, and this network gives "
        "classes of whole texts; expected --names hugging-face");
  }
  expect_one_class(run);
  if (const std::string why = lacks_tokenizer(run); !why.empty()) throw std::invalid_argument(why);
  TrainConfig config = run.config;
  config.weights.clear();
  config.resume.clear();
  config.out = folder.string();
  if (is_text(run)) config.seq_len = run.model->tokens();  // its table may hold no more
  io::write_file(config_file(folder), to_json(config));
  if (!is_text(run)) {
    const auto& shape = dynamic_cast<const models::ImageModel&>(*run.model).shape();
    RunClasses classes{.names = run.class_names, .input = input_of(run), .shape = shape};
    for (std::int64_t i = 0; run.class_names.empty() && i < shape.classes; ++i) {
      classes.names.push_back("class " + std::to_string(i));
    }
    write_classes(folder, classes);
  } else if (run.tokenizer) {
    data::save_tokenizer(*run.tokenizer, tokenizer_folder(folder));
  }
  models::save_weights(*run.model, weights_file(folder));
}

// For networks that only pareprop has.
std::invalid_argument with_advice(const std::invalid_argument& error, ExportNames names) {
  if (names == ExportNames::own) return error;
  return std::invalid_argument(std::string(error.what()) +
                               "; --names own writes it with our own names");
}

}  // namespace

ExportNames parse_export_names(std::string_view word) {
  if (word == "hugging-face") return ExportNames::hugging_face;
  if (word == "timm") return ExportNames::timm;
  if (word == "own") return ExportNames::own;
  throw std::invalid_argument("expected hugging-face, timm or own, got '" + std::string(word) +
                              "'");
}

void export_run(const TrainedRun& run, const fs::path& folder, ExportNames names) {
  if (fs::exists(fs::symlink_status(folder)) &&
      !(fs::is_directory(fs::symlink_status(folder)) && fs::is_empty(folder))) {
    throw std::invalid_argument(folder.string() +
                                " is there already and not an empty folder; choose another name");
  }
  fs::path partial = folder.has_filename() ? folder : folder.parent_path();
  const fs::path whole = partial;
  partial += ".partial-" + std::to_string(getpid());
  fs::create_directories(partial);
  try {
    if (names == ExportNames::hugging_face) write_hugging_face(run, partial);
    if (names == ExportNames::timm) write_timm(run, partial);
    if (names == ExportNames::own) write_own(run, partial);
    fs::rename(partial, whole);
  } catch (const std::invalid_argument& error) {
    fs::remove_all(partial);
    throw with_advice(error, names);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
}

}  // namespace pareprop::train
