#include "pareprop/train/run_writer.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "pareprop/io/atomic_file.h"
#include "pareprop/train/run_page.h"
#include "pareprop/train/trained_run.h"
#include "pareprop/train/trainer.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

RunWriter::RunWriter(const TrainConfig& config, const RunFolder* folder, const TrainingData& data,
                     const Trained& trained, const TrainState* resumed, Say say)
    : config_(config),
      say_(std::move(say)),
      folder_(folder),
      saved_at_(std::chrono::steady_clock::now()) {
  const bool saves = folder_ != nullptr || !trained.shares.holds_all();
  if (saves) store_.emplace(checkpoint_folder(config_.out), config_.keep);
  if (folder_ == nullptr) return;
  if (resumed == nullptr) {
    if (const auto names = set_aside(config_.out); !names.empty() && say_) {
      say_("files of an earlier attempt were renamed to " + listed(names));
    }
  }
  remove_leftovers_of_run(config_.out);
  const std::int64_t step = resumed != nullptr ? resumed->step : 0;
  const bool evaluated = resumed != nullptr && !resumed->losses.empty();
  log_.emplace(config_.out, step, evaluated ? resumed->losses.back().step : 0);
  best_.emplace(best_weights_file(config_.out));
  write_run_files(config_.out, config_, data, trained.model);
  best_->forget_after(step);
  // They are not the last any more, and are written again at the end.
  fs::remove(weights_file(config_.out));
  if (!saves_on_the_way() && say_) {
    say_(
        "no checkpoints are saved before the end (--save-every 0): a killed run has to start again "
        "from step 0");
  }
}

void RunWriter::keep_if_best(const models::Model& model, std::int64_t step) {
  if (!log_ || log_->evaluations().empty()) return;
  const EvaluationRecord& last = log_->evaluations().back();
  const bool is_lowest = std::all_of(log_->evaluations().begin(), log_->evaluations().end(),
                                     [&](const auto& each) { return !(each.loss < last.loss); });
  if (last.step == step && is_lowest) {
    best_->offer(model, step, {.loss = last.loss, .accuracy = last.accuracy});
  }
}

bool RunWriter::checkpoint_due(std::int64_t step) const {
  if (folder_ == nullptr || !saves_on_the_way()) return false;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - saved_at_;
  return (config_.save_every && step % *config_.save_every == 0) ||
         since.count() >= 60.0 * config_.save_minutes;
}

void RunWriter::save(const Trained& trained, TrainState state) {
  if (!store_) return;
  check_folder();
  store_->save(trained, std::move(state));
  saved_at_ = std::chrono::steady_clock::now();
}

void RunWriter::check_folder() const {
  if (folder_ != nullptr) folder_->check_there();
}

void RunWriter::add(const StepRecord& record) {
  if (log_) log_->add(record);
}

void RunWriter::add(const EvaluationRecord& record, const models::Model& model,
                    const Evaluation& found) {
  if (folder_ == nullptr) return;
  folder_->check_there();
  best_->offer(model, record.step, found);
  log_->add(record);
}

void RunWriter::add_history(TrainResult& result) const {
  if (!log_) return;
  result.best = best_->best();
  result.steps = log_->steps();
  result.evaluations = log_->evaluations();
}

void RunWriter::write_page(const TrainResult& result) const {
  if (folder_ == nullptr) return;
  const fs::path page = fs::path(config_.out) / "run.html";
  try {
    check_file_of_run(page);
    io::write_file(page, run_page(config_, result));
  } catch (const std::exception& error) {
    if (result.end != TrainEnd::running) throw;
    if (say_) say_(page.string() + " could not be written: " + error.what());
  }
}

void RunWriter::write_weights(models::Model& model, std::int64_t step, bool best) {
  if (folder_ == nullptr) return;
  const std::optional<WeightsOf> origin = best ? best_->best() : std::nullopt;
  if (origin) load_run_weights(model, best_weights_file(config_.out));
  save_run_weights(model, weights_file(config_.out), origin.value_or(WeightsOf{.step = step}));
}

}  // namespace pareprop::train
