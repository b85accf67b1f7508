#pragma once

#include <functional>
#include <optional>
#include <string>

#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// The checkpoint that a run goes on from, as config.resume says; none: it begins anew. Checkpoints
// that are damaged are passed over with `auto`, and told to `on_message` (may be null).
//
// Throws std::invalid_argument when something in the folder is in the way (check_parts_of_run),
// when the folder holds a run already and config.resume is empty, or when batches would not be the
// ones that follow: another batch size, seed or data set. Another number of processes is told; it
// goes with the same batch size, or with one that leaves as many samples to a step.
// std::runtime_error when a checkpoint that was named is damaged.
std::optional<StoredCheckpoint> find_checkpoint(
    const TrainConfig& config, int world,
    const std::function<void(const std::string&)>& on_message);

// With the tokenizer that was trained for this run before it was interrupted, where none is named.
TrainConfig with_tokenizer_of_run(TrainConfig config, bool goes_on);

// Throws std::invalid_argument when the text was divided by another tokenizer than the run's own.
void check_tokenizer(const TrainConfig& config, const TrainingData& data);

}  // namespace pareprop::train
