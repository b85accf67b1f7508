#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "pareprop/io/event_file.h"

namespace pareprop::train {

// One step of training, or the mean of those since the last one that was written down.
struct StepRecord {
  std::int64_t step = 0;  // steps done
  double epoch = 0.0;     // passes over the data done
  double loss = 0.0;
  double accuracy = 0.0;  // share of samples, or of masked tokens, whose best guess was right
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  // before clipping
  double samples_per_s = 0.0;  // of all processes
  double waited = 0.0;         // share of the time that training waited for data
  double drift = 0.0;          // of reconstruction, in the last step
  std::int64_t peak_bytes = 0;
  std::int64_t reserved_peak_bytes = 0;  // by the allocator of an accelerator
  std::int64_t predicted_peak_bytes = 0;
};

struct EvaluationRecord {
  std::int64_t step = 0;
  double loss = 0.0;
  double accuracy = 0.0;
};

// What happened in a run: FOLDER/metrics.jsonl, one JSON object a line, and the same for
// TensorBoard in FOLDER/tensorboard. Every call is written when it returns.
class MetricsLog {
 public:
  // Goes on after `step`, and after the evaluation of the step `evaluated`: lines of later ones,
  // which will come again, are removed; so is a last line that a kill cut off. Throws
  // std::system_error when a file cannot be written.
  MetricsLog(const std::filesystem::path& folder, std::int64_t step, std::int64_t evaluated);

  void add(const StepRecord& record);
  void add(const EvaluationRecord& record);

  // All of the run, from before it was resumed too.
  const std::vector<StepRecord>& steps() const { return steps_; }
  const std::vector<EvaluationRecord>& evaluations() const { return evaluations_; }

 private:
  void keep_until(std::int64_t step, std::int64_t evaluated);
  void write(const std::string& line);

  std::filesystem::path path_;
  std::ofstream lines_;
  io::EventFile events_;
  std::vector<StepRecord> steps_;
  std::vector<EvaluationRecord> evaluations_;
};

}  // namespace pareprop::train
