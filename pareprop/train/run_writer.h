#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/train/best_weights.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/run_log.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

struct TrainResult;

// All that a run writes to its folder. One of the processes that train together writes; in the
// others every call does nothing.
class RunWriter {
 public:
  using Say = std::function<void(const std::string&)>;

  // Throws what RunFolder does.
  RunWriter(const TrainConfig& config, bool writes, Say say);

  // Makes the folder, which no other run can use from now on. Throws as the constructor does.
  void own_folder();

  // Before the first step: the files that describe the run. `resumed` is where the checkpoint is
  // that it continues; null: what an earlier attempt left gets other names. What is not true any
  // more of the resumed run is removed last: when this throws, all is there still.
  void begin(const TrainingData& data, const models::Model& model, const TrainState* resumed);

  // Weights of the model are those that were evaluated at this step, the last so far. Keeps them
  // where they are the best: begin() may have removed what was kept, of a later step.
  void keep_if_best(const models::Model& model, std::int64_t step);

  // Of the checkpoints' rhythm: true when the one that is due every so many steps or minutes is.
  bool checkpoint_due(std::int64_t step) const;
  // Whether there are checkpoints before the end.
  bool saves_on_the_way() const { return config_.save_every != 0; }
  void save(const Trained& trained, TrainState state);

  // Throws when the folder is gone.
  void check_folder() const;
  void add(const StepRecord& record);
  // Weights of the model are those that were evaluated.
  void add(const EvaluationRecord& record, const models::Model& model, const Evaluation& found);

  // Gives the result its steps, evaluations and best weights so far.
  void add_history(TrainResult& result) const;

  // run.html. On the way (`result.end` is running) a page that cannot be written is only told.
  void write_page(const TrainResult& result) const;

  // model.safetensors: the model's weights or, after an early stop, the best ones. Throws
  // std::system_error.
  void write_weights(models::Model& model, std::int64_t step, bool best);

 private:
  const TrainConfig& config_;
  const Say say_;
  std::optional<RunFolder> folder_;  // none: another process writes
  CheckpointStore store_;
  std::optional<RunLog> log_;
  std::optional<BestWeights> best_;
  std::chrono::steady_clock::time_point saved_at_;
};

}  // namespace pareprop::train
