#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/train/best_weights.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/metrics_log.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

struct TrainResult;

// All that a run writes to its folder, but for the trace of a step (run_trace.h). One of the
// processes that train together writes; in the others every call does nothing, but for save() where
// they divide the optimizer's state.
class RunWriter {
 public:
  using Say = std::function<void(const std::string&)>;

  // Before the first step: writes the files that describe the run. `folder` is owned; null: another
  // process writes. `resumed` is where the checkpoint is that the run continues; null: what an
  // earlier attempt left gets other names. What is not true any more of the resumed run is removed
  // last: when this throws, all is there still. `config` and `folder` outlive it.
  RunWriter(const TrainConfig& config, const RunFolder* folder, const TrainingData& data,
            const Trained& trained, const TrainState* resumed, Say say);

  // Weights of the model are those that were evaluated at this step, the last so far. Keeps them
  // where they are the best: what was kept of a later step is removed when a run is resumed.
  void keep_if_best(const models::Model& model, std::int64_t step);

  // Of the checkpoints' rhythm: true when the one that is due every so many steps or minutes is.
  bool checkpoint_due(std::int64_t step) const;
  // Whether there are checkpoints before the end.
  bool saves_on_the_way() const { return config_.save_every != 0; }
  // By all holders of the state (CheckpointStore::save).
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
  std::optional<CheckpointStore> store_;  // none: another process writes all that is trained
  const RunFolder* const folder_;         // null, and none of those below: another process writes
  std::optional<MetricsLog> log_;
  std::optional<BestWeights> best_;
  std::chrono::steady_clock::time_point saved_at_;
};

}  // namespace pareprop::train
