#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/distributed/process_group.h"
#include "pareprop/memory/meter.h"
#include "pareprop/reversible/stack_options.h"
#include "pareprop/train/best_weights.h"
#include "pareprop/train/evaluate.h"
#include "pareprop/train/metrics_log.h"
#include "pareprop/train/train_config.h"

namespace pareprop::train {

// What whoever watches a run is told. Called on the thread that trains; any may be null.
struct TrainEvents {
  // Before the first step: where it begins and ends.
  std::function<void(std::int64_t first_step, std::int64_t all_steps)> on_begin;
  // After every step; `seconds_left` as the speed so far tells.
  std::function<void(const StepRecord&, std::int64_t all_steps, double seconds_left)> on_step;
  std::function<void(std::int64_t done, std::int64_t all)> on_evaluating;
  std::function<void(const EvaluationRecord&)> on_evaluation;
  // Something that one would want to know: resumed from, skipped, stopped early.
  std::function<void(const std::string&)> on_message;
  // True: save and stop. Asked in every process, before every step and after every batch of an
  // evaluation, which is then given up.
  std::function<bool()> stop_asked;
};

// `nothing_to_do`: the run had ended before. `running` is only seen by the page of a run.
enum class TrainEnd {
  running,
  finished,
  stopped_early,
  stopped_by_user,
  out_of_time,
  nothing_to_do
};

struct TrainResult {
  TrainEnd end = TrainEnd::finished;
  std::int64_t step = 0;
  std::int64_t all_steps = 0;
  double last_loss = 0.0;
  Evaluation evaluation = {};             // of the last one
  std::optional<WeightsOf> best = {};     // rank 0 only: of which step best.safetensors is
  double seconds = 0.0;                   // of this process, from the first step on
  double seconds_in_all = 0.0;            // with those before the run was resumed
  memory::Usage memory = {};              // peaks of the steps
  std::int64_t budget_bytes = 0;          // 0: none was named
  std::int64_t predicted_peak_bytes = 0;  // of the plan in the end
  std::int64_t parts = 1;                 // that each batch was computed in
  double waited = 0.0;                    // share of the time that training waited for data
  std::vector<StackPlan> stacks = {};     // how each of the network's stacks was trained in the end
  std::vector<std::string> skipped = {};  // images that could not be read
  std::vector<StepRecord> steps = {};     // rank 0 only, as metrics.jsonl has them
  std::vector<EvaluationRecord> evaluations = {};
};

// Trains as `config` says. The folder config.out gets config.json, metrics.jsonl, tensorboard/,
// checkpoints/, classes.json or tokenizer/, at every evaluation best.safetensors (if it is the
// best) and run.html, and at the end model.safetensors. Rank 0 of the group writes; all processes
// compute the same weights. Nothing is written before the first step is about to begin (on_begin),
// and a run that had ended is left as it is.
//
// Throws std::invalid_argument for what cannot be asked for, std::system_error for files, and
// std::runtime_error when a process was lost, or when the loss or a gradient is not finite: the
// state before that step is saved then.
TrainResult train(const TrainConfig& config, distributed::ProcessGroup& group,
                  const TrainEvents& events = {});

}  // namespace pareprop::train
