#include "pareprop/train/resume.h"

#include <stdexcept>

namespace pareprop::train {
namespace {

// Fields without which the next batch would not be the next one, or the weights not the same.
constexpr const char* kFixed[] = {"data", "batch", "accumulate", "seed"};

void check_fits(const TrainConfig& config, int world, const StoredCheckpoint& checkpoint) {
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
    for (const char* key : kFixed) {
      if (is[i].key != key || is[i].value == was[i].value) continue;
      throw std::invalid_argument(where + " was trained with " + key + " " + was[i].value +
                                  ", and now it is " + is[i].value +
                                  ": use the same, or begin another run with its weights "
                                  "(--weights)");
    }
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
    check_fits(config, world, named);
    return named;
  }
  CheckpointSearch search = newest_whole(checkpoint_folder(config));
  if (config.resume.empty()) {
    if (!search.newest && search.skipped.empty()) return std::nullopt;
    throw std::invalid_argument(config.out +
                                " holds a run already: go on with it (--resume auto), or choose "
                                "another folder (--out)");
  }
  if (on_message) {
    for (const std::string& line : search.skipped) on_message("not used: " + line);
  }
  if (search.newest) check_fits(config, world, *search.newest);
  return std::move(search.newest);
}

}  // namespace pareprop::train
