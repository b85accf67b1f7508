#include "pareprop/train/resume.h"

#include <algorithm>
#include <span>
#include <stdexcept>

namespace pareprop::train {
namespace {

// Fields without which the next batch would not be the next one, or the weights not the same.
constexpr const char* kFixed[] = {"data", "batch", "accumulate", "seed"};

// Fields that say nothing about how the weights come about.
constexpr const char* kFree[] = {"out",        "resume", "save_every", "keep",
                                 "log_every",  "trace",  "workers",    "timeout",
                                 "time_limit", "mode",   "budget",     "tokenizer"};

bool is_one_of(std::span<const char* const> keys, const std::string& key) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* one) { return key == one; });
}

void check_fits(const TrainConfig& config, int world, const StoredCheckpoint& checkpoint,
                const std::function<void(const std::string&)>& on_message) {
  const std::string where = checkpoint.folder.string();
  if (checkpoint.state.world != world) {
    throw std::invalid_argument(
        where + " was written by " + std::to_string(checkpoint.state.world) +
        " processes, and now there are " + std::to_string(world) +
        ": start as many, or begin another run with its weights (--weights)");
  }
  TrainConfig before;
  apply_json(before, checkpoint.state.config, where);
  const auto was = fields(before), is = fields(config);
  for (std::size_t i = 0; i < is.size(); ++i) {
    if (is[i].value == was[i].value || is_one_of(kFree, is[i].key)) continue;
    const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
    const std::string change =
        is[i].key + " " + shown(was[i].value) + ", and now it is " + shown(is[i].value);
    if (is_one_of(kFixed, is[i].key)) {
      throw std::invalid_argument(where + " was trained with " + change +
                                  ": use the same, or begin another run with its weights "
                                  "(--weights)");
    }
    if (on_message) on_message("trained so far with " + change);
  }
}

}  // namespace

std::filesystem::path checkpoint_folder(const TrainConfig& config) {
  return std::filesystem::path(config.out) / "checkpoints";
}

std::optional<StoredCheckpoint> find_checkpoint(
    const TrainConfig& config, int world,
    const std::function<void(const std::string&)>& on_message) {
  if (!config.resume.empty() && config.resume != "auto") {
    StoredCheckpoint named = open_checkpoint(config.resume);
    check_fits(config, world, named, on_message);
    const CheckpointSearch own = newest_whole(checkpoint_folder(config));
    if (own.newest && own.newest->state.step > named.state.step) {
      throw std::invalid_argument(own.newest->folder.string() + " is newer than " + config.resume +
                                  ", and would be mistaken for its continuation: remove it, or "
                                  "choose another folder (--out)");
    }
    return named;
  }
  CheckpointSearch search = newest_whole(checkpoint_folder(config));
  if (config.resume.empty()) {
    if (!search.newest && search.skipped.empty()) return std::nullopt;
    throw std::invalid_argument(config.out +
                                " holds a run already: go on with it (--resume auto), or choose "
                                "another folder (--out)");
  }
  if (!search.newest && !search.skipped.empty()) {
    throw std::runtime_error("no checkpoint in " + checkpoint_folder(config).string() +
                             " can be used: " + search.skipped.front() +
                             ". Mend or remove them, or choose another folder (--out)");
  }
  if (on_message) {
    for (const std::string& line : search.skipped) on_message("not used: " + line);
  }
  if (search.newest) check_fits(config, world, *search.newest, on_message);
  return std::move(search.newest);
}

}  // namespace pareprop::train
