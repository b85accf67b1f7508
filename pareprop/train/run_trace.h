#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/trace/recorder.h"
#include "pareprop/train/train_config.h"

namespace pareprop::train {

// Records the step of a run that TrainConfig::trace names, and writes it to the run's folder as
// trace.json (for Perfetto) and trace.svg. Rank 0 does; in other processes nothing happens.
class RunTrace {
 public:
  // After the stacks of `model` got their options, in a process that will train the steps after
  // `done`. A step that was done before is a message.
  RunTrace(const TrainConfig& config, models::Model& model, int rank, std::int64_t done,
           std::function<void(const std::string&)> on_message);

  // What records `step`, beginning now; null for a step that is not to be recorded.
  TraceRecorder* begin(std::int64_t step);
  // After every step: writes the one that was recorded. A file that cannot be written is a message,
  // not an error: training goes on.
  void finish();

 private:
  void write(const StepTrace& trace) const;

  const std::filesystem::path folder_;
  const std::int64_t step_;
  const std::string title_;
  const std::function<void(const std::string&)> on_message_;
  std::optional<TraceRecorder> recorder_;
  bool recording_ = false;
};

}  // namespace pareprop::train
