#include "pareprop/train/run_trace.h"

#include <stdexcept>
#include <utility>

#include "pareprop/io/atomic_file.h"
#include "pareprop/text/units.h"
#include "pareprop/trace/chrome.h"
#include "pareprop/trace/step_svg.h"
#include "pareprop/trace/summary.h"

namespace pareprop::train {

RunTrace::RunTrace(const TrainConfig& config, models::Model& model, int rank, std::int64_t done,
                   std::function<void(const std::string&)> on_message)
    : folder_(config.out),
      step_(config.trace),
      title_(model_of(config) + ", " + config.mode + ", step " + std::to_string(config.trace)),
      on_message_(std::move(on_message)) {
  if (step_ == 0 || rank != 0) return;
  if (step_ > done) {
    recorder_.emplace(model);
  } else if (on_message_) {
    on_message_("no trace: step " + std::to_string(step_) +
                " was before the checkpoint that the run resumed from");
  }
}

TraceRecorder* RunTrace::begin(std::int64_t step) {
  if (!recorder_ || step != step_) return nullptr;
  recorder_->begin(title_);
  recording_ = true;
  return &*recorder_;
}

void RunTrace::finish() {
  if (!std::exchange(recording_, false)) return;
  const StepTrace trace = recorder_->finish();
  std::string said = "trace of step " + std::to_string(step_);
  try {
    write(trace);
    const Overlap overlap = summarise(trace).overlap;
    said += ": trace.json, trace.svg";
    if (overlap.recover > 0.0) {
      said += "; " + text::percent_text(overlap.share()) + " of recovery ran beside a gradient";
    }
  } catch (const std::exception& error) {
    said += " could not be written: " + std::string(error.what());
  }
  if (on_message_) on_message_(said);
}

void RunTrace::write(const StepTrace& trace) const {
  io::write_file(folder_ / "trace.json", chrome_trace(trace));
  io::write_file(folder_ / "trace.svg", step_svg(trace));
}

}  // namespace pareprop::train
