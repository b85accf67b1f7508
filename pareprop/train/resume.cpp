#include "pareprop/train/resume.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <stdexcept>

#include "pareprop/data/text/tokenizer_file.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/trained_run.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

// Fields, besides the batch, without which the next batch would not be the next one, or the weights
// not the same, and those that the state of the optimizer is made by.
constexpr const char* kFixed[] = {"data",      "accumulate",      "seed",
                                  "optimizer", "optimizer_state", "freeze"};

// Fields that say nothing about how the weights come about.
constexpr const char* kFree[] = {"out",       "resume",     "save_every", "save_minutes",
                                 "keep",      "log_every",  "trace",      "workers",
                                 "timeout",   "time_limit", "mode",       "budget",
                                 "tokenizer", "force",      "allow",      "shard"};

bool is_one_of(std::span<const char* const> keys, const std::string& key) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* one) { return key == one; });
}

// The samples of a batch follow from its number and from how many all processes take of it. With
// as many as before the next batch is the one that follows; with others it is cut otherwise, and
// samples of this epoch come twice or not at all. Which, nobody would want without knowing.
void check_processes(const TrainConfig& before, const TrainConfig& config, int world,
                     const StoredCheckpoint& checkpoint,
                     const std::function<void(const std::string&)>& on_message) {
  const int wrote = checkpoint.state.world;
  const std::int64_t was = before.batch * wrote, is = config.batch * world;
  if (wrote == world && before.batch == config.batch) return;
  const std::string there = checkpoint.folder.string() + " was trained with --batch " +
                            std::to_string(before.batch) + " by " + std::to_string(wrote) +
                            (wrote == 1 ? " process" : " processes");
  if (wrote == world || (was != is && before.batch != config.batch)) {
    const std::string same = was % world == 0 ? "--batch " + std::to_string(was / world)
                                              : "--batch " + std::to_string(before.batch) +
                                                    ", with which a step has other samples,";
    throw std::invalid_argument(there + ", but now it is --batch " + std::to_string(config.batch) +
                                " with " + std::to_string(world) + ": use " + same +
                                " or start another run from these weights (--weights)");
  }
  if (!on_message) return;
  on_message(there + ", and goes on with --batch " + std::to_string(config.batch) + " in " +
             std::to_string(world) +
             (was == is ? ": the batches are the same, divided otherwise"
                        : ": a micro-batch has " + std::to_string(is) + " samples instead of " +
                              std::to_string(was) +
                              ", so some samples of this epoch come twice or not at all"));
}

void check_fits(const TrainConfig& config, int world, const StoredCheckpoint& checkpoint,
                const std::function<void(const std::string&)>& on_message) {
  const std::string where = checkpoint.folder.string();
  TrainConfig before;
  apply_json(before, checkpoint.state.config, where);
  check_processes(before, config, world, checkpoint, on_message);
  const auto was = fields(before), is = fields(config);
  for (std::size_t i = 0; i < is.size(); ++i) {
    if (is[i].value == was[i].value || is_one_of(kFree, is[i].key)) continue;
    if (is[i].key == "batch") continue;  // check_processes
    const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
    const std::string change =
        flag_name(is[i].key) + " " + shown(was[i].value) + ", but now it is " + shown(is[i].value);
    if (is_one_of(kFixed, is[i].key)) {
      throw std::invalid_argument(where + " was trained with " + change +
                                  ": use the same, or start another run from these weights "
                                  "(--weights)");
    }
    if (on_message) on_message("the checkpoint was trained with " + change);
  }
}

// Nothing of a folder is overwritten that is not a run which is continued.
void check_new(const TrainConfig& config) {
  const std::vector<fs::path> there = files_of_run(config.out);
  if (there.empty()) return;
  throw std::invalid_argument(config.out + " already holds a run (" +
                              there.front().filename().string() +
                              "): continue it with --resume auto, or choose another folder with "
                              "--out");
}

// Without a checkpoint: what is there must be an attempt that was not finished, and ours.
void check_begun(const TrainConfig& config) {
  if (files_of_run(config.out).empty()) return;
  if (fs::exists(weights_file(config.out))) {
    throw std::invalid_argument(
        weights_file(config.out).string() +
        " would be overwritten: the folder has trained weights, but no checkpoint to resume from. "
        "Choose another folder with --out; to start from these weights, use --weights");
  }
  config_of_begun_run(config.out);
}

StoredCheckpoint named_checkpoint(const TrainConfig& config, int world,
                                  const std::function<void(const std::string&)>& on_message) {
  StoredCheckpoint named = open_checkpoint(config.resume);
  check_fits(config, world, named, on_message);
  const fs::path own = checkpoint_folder(config.out);
  std::error_code ignored;
  if (!fs::equivalent(fs::path(config.resume).lexically_normal() / "..", own, ignored)) {
    check_new(config);  // a branch of another run
  }
  const CheckpointSearch search = newest_whole(own);
  if (search.newest && search.newest->state.step > named.state.step) {
    throw std::invalid_argument(search.newest->folder.string() + " is newer than " + config.resume +
                                ", and the next --resume auto would use it: remove it, or "
                                "choose another folder (--out)");
  }
  return named;
}

}  // namespace

TrainConfig with_tokenizer_of_run(TrainConfig config, bool goes_on) {
  const fs::path own = tokenizer_folder(config.out);
  if (config.tokenizer.empty() && goes_on && fs::exists(own)) config.tokenizer = own.string();
  return config;
}

void check_tokenizer(const TrainConfig& config, const TrainingData& data) {
  const fs::path own = tokenizer_folder(config.out);
  if (!data.text || !fs::exists(own)) return;
  if (data::load_saved_tokenizer(own).tables() == data.text->tokenizer.tables()) return;
  throw FieldError("tokenizer", config.tokenizer + " differs from the tokenizer of the run, " +
                                    own.string() + "; leave out --tokenizer");
}

std::optional<StoredCheckpoint> find_checkpoint(
    const TrainConfig& config, int world,
    const std::function<void(const std::string&)>& on_message) {
  check_parts_of_run(config.out);
  if (config.resume.empty()) {
    check_new(config);
    return std::nullopt;
  }
  if (config.resume != "auto") return named_checkpoint(config, world, on_message);
  CheckpointSearch search = newest_whole(checkpoint_folder(config.out));
  if (!search.newest && !search.skipped.empty()) {
    throw std::runtime_error(
        "no checkpoint in " + checkpoint_folder(config.out).string() +
        " can be used: " + search.skipped.front() +
        ". Repair or remove the checkpoints, or choose another folder (--out)");
  }
  if (on_message) {
    for (const std::string& line : search.skipped) on_message("not used: " + line);
  }
  if (search.newest) {
    check_fits(config, world, *search.newest, on_message);
  } else {
    check_begun(config);
    if (on_message) {
      on_message("there is no checkpoint in " + checkpoint_folder(config.out).string() +
                 ": training starts at step 0");
    }
  }
  return std::move(search.newest);
}

}  // namespace pareprop::train
