#include "pareprop/train/training_loop.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "pareprop/data/prefetch.h"
#include "pareprop/device/torch_error.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/text/fixed.h"
#include "pareprop/train/head_first.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/run_writer.h"
#include "pareprop/train/train_step.h"

namespace pareprop::train {
namespace {

using Clock = std::chrono::steady_clock;

// The step after which this process begins.
std::int64_t done_before(const ReadyRun& run) {
  return run.resumed != nullptr ? run.resumed->step : 0;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class TrainingLoop {
 public:
  TrainingLoop(const ReadyRun& run, BatchFeed& batches, RunWriter& writer)
      : run_(run),
        config_(run.config),
        schedule_(run.schedule),
        model_(run.trained.model),
        events_(run.events),
        batches_(batches),
        writer_(writer),
        begun_at_(done_before(run)),
        step_(begun_at_),
        saved_(begun_at_),
        state_bytes_(run.trained.state_bytes()),
        head_first_(model_, run.trained.shares.all(), run.config.head_steps) {
    if (run.resumed != nullptr) evaluated_ = run.resumed->losses;
  }

  TrainResult train() {
    if (is_evaluated(step_, evaluated_)) {
      or_name_checkpoint([&] {
        const AveragedWeights averaged(run_.trained.average);
        writer_.keep_if_best(model_, step_);
      });
    }
    model_.train();
    begin_ = Clock::now();
    std::optional<TrainEnd> end = evaluate_if_due();
    while (!end && !schedule_.is_last(step_)) {
      const std::optional<TrainEnd> stop = train_step();
      // Before an evaluation, which may take long, and after it.
      if (checkpoint_due()) save();
      // An evaluation that is due comes first when the run goes on.
      end = stop && !schedule_.is_last(step_) ? stop : evaluate_if_due();
      if (saved_ < step_ && (end || schedule_.is_last(step_))) save();
    }
    return or_name_checkpoint([&] { return finish(end.value_or(TrainEnd::finished)); });
  }

 private:
  // What fails has not touched the weights, unless it says so: what was trained before it is not
  // lost, unless the device is.
  template <typename Action>
  auto or_save(Action&& action) {
    try {
      return action();
    } catch (const HalfTakenStep& error) {
      throw Failure(error.fault(), "step " + std::to_string(step_ + 1) + ": " + error.what() +
                                       "; " + half_taken());
    } catch (const c10::Error& error) {
      save_before_failing();
      throw failure(error);
    } catch (...) {
      save_before_failing();
      throw;
    }
  }

  // What was saved last is whole.
  std::string half_taken() const {
    return "the optimizer had changed some of the weights, so they are not saved; " +
           last_checkpoint();
  }

  // Only by a process that needs no other: where state is divided, the others do not know of it.
  void save_before_failing() {
    if (!run_.trained.shares.holds_all()) return;
    try {
      if (step_ > 0) write_state();
    } catch (const c10::AcceleratorError&) {
      // A lost device does not give the weights back: last_checkpoint() says what there is.
    } catch (const std::exception& error) {
      say(std::string("the state after step ") + std::to_string(step_) +
          " could not be saved: " + error.what());
    }
  }

  // A device may be lost while it gives back what is written.
  template <typename Action>
  std::invoke_result_t<Action> or_name_checkpoint(Action&& action) {
    try {
      return action();
    } catch (const c10::AcceleratorError& error) {
      throw failure(error);
    }
  }

  Failure failure(const c10::Error& error) const {
    return {fault_of(error), "after step " + std::to_string(step_) + ": " + explained(error) +
                                 "; " + last_checkpoint()};
  }

  std::string last_checkpoint() const {
    if (saved_ == 0) return "there is no checkpoint yet";
    return "the last checkpoint is that of step " + std::to_string(saved_) + ", in " +
           checkpoint_folder(config_.out).string() + ": --resume auto goes on from it";
  }

  // Why training has to stop after it, if it has.
  std::optional<TrainEnd> train_step() {
    writer_.check_folder();
    const auto begin = Clock::now();
    const double waited_before = batches_.waited_seconds();
    const double rate = schedule_.learning_rate(step_);
    head_first_.begin_step(step_);
    const bool out_of_time =
        config_.time_limit > 0.0 && seconds_since(begin_) > 60.0 * config_.time_limit;
    const bool asked = stop_asked();
    const StepOutcome outcome = or_save([&] { return change_weights(rate, asked || out_of_time); });
    run_.trace.finish();
    if (!outcome.not_finite.empty()) refuse_step(outcome);
    ++step_;
    const double seconds = seconds_since(begin);
    last_ = record_of(outcome, rate, seconds, batches_.waited_seconds() - waited_before);
    // The step was done: what is wrong is that the next one might take too much.
    or_save([&] {
      if (run_.keeper.tighten(step_)) model_.set_plan(run_.keeper.plan().step);
    });
    if (schedule_.is_logged(step_, begun_at_ + 1)) writer_.add(last_);
    if (events_.on_step) {
      const double each = seconds_since(begin_) / static_cast<double>(step_ - begun_at_);
      events_.on_step(last_, schedule_.all_steps(),
                      each * static_cast<double>(schedule_.all_steps() - step_));
    }
    if (!outcome.stop) return std::nullopt;
    return out_of_time && !asked ? TrainEnd::out_of_time : TrainEnd::stopped_by_user;
  }

  StepOutcome change_weights(double rate, bool wants_stop) {
    const Trained& trained = run_.trained;
    return run_step({model_, trained.optimizer, trained.average, run_.buckets, trained.shares,
                     run_.trace.begin(step_ + 1), run_.inside},
                    {.batch = config_.batch,
                     .accumulate = config_.accumulate,
                     .clip = config_.clip,
                     .seed = config_.seed},
                    batches_, rate, wants_stop);
  }

  StepRecord record_of(const StepOutcome& outcome, double rate, double seconds,
                       double waited) const {
    const std::int64_t samples = config_.batch * config_.accumulate * run_.group.world();
    const memory::Usage memory = usage();
    return {.step = step_,
            .epoch = schedule_.epochs(step_),
            .loss = outcome.loss,
            .accuracy = outcome.accuracy,
            .learning_rate = rate,
            .gradient_norm = outcome.gradient_norm,
            .samples_per_s = static_cast<double>(samples) / seconds,
            .waited = waited / seconds,
            .drift = model_.drift().worst,
            .peak_bytes = memory.total_peak,
            .reserved_peak_bytes = memory.reserved_peak,
            .predicted_peak_bytes = run_.keeper.plan().predicted.total_peak};
  }

  // The weights are those before the step that went wrong.
  [[noreturn]] void refuse_step(const StepOutcome& outcome) {
    if (outcome.half_taken) {
      throw std::runtime_error("step " + std::to_string(step_ + 1) + ": " + outcome.not_finite +
                               " is not finite; " + half_taken() +
                               "; try a lower --learning-rate, a longer --warmup, or --clip, which "
                               "looks at all gradients before it changes a weight");
    }
    save();
    throw std::runtime_error("step " + std::to_string(step_ + 1) + ": " + outcome.not_finite +
                             " is not finite (loss " + std::to_string(outcome.loss) +
                             "). The state before this step is saved in " +
                             checkpoint_folder(config_.out).string() +
                             "; try a lower --learning-rate, a longer --warmup or --clip");
  }

  // Why training ends after it, if it does.
  std::optional<TrainEnd> evaluate_if_due() {
    if (!schedule_.evaluates(step_)) return std::nullopt;
    if (!is_evaluated(step_, evaluated_)) {
      if (const auto end = or_save([&] { return evaluate_now(); })) return end;
      if (writer_.saves_on_the_way() || schedule_.is_last(step_)) save();
    }
    const bool early = schedule_.stops_early(evaluated_) && !schedule_.is_last(step_);
    return early ? std::optional(TrainEnd::stopped_early) : std::nullopt;
  }

  // Why training ends instead, if it was asked to: the state is saved first then.
  std::optional<TrainEnd> evaluate_now() {
    drop_gradients(model_);  // of the last step: the plan has their memory for activations
    std::optional<AveragedWeights> averaged(std::in_place, run_.trained.average);
    EvaluateOptions options{.workers = config_.workers, .samples = run_.keeper.samples()};
    options.on_batch = [&](std::int64_t done, std::int64_t all) {
      writer_.check_folder();
      if (saved_ < step_ && checkpoint_due()) {
        averaged.reset();
        save();
        averaged.emplace(run_.trained.average);
      }
      if (events_.on_evaluating) events_.on_evaluating(done, all);
      return stop_asked();
    };
    const Evaluation found = evaluate(model_, run_.batches.test, run_.group, options);
    if (!found.whole) {
      averaged.reset();
      if (saved_ < step_) save();
      return TrainEnd::stopped_by_user;
    }
    evaluated_.push_back({step_, found.loss});
    if (found.rows == 0) {
      say("step " + std::to_string(step_) +
          ": no evaluation, because no validation data could be read");
      return std::nullopt;
    }
    evaluation_ = found;
    const EvaluationRecord record{.step = step_, .loss = found.loss, .accuracy = found.accuracy};
    writer_.add(record, model_, found);
    averaged.reset();
    writer_.write_page(result(TrainEnd::running));
    if (events_.on_evaluation) events_.on_evaluation(record);
    return std::nullopt;
  }

  // As the process that writes decides: those that hold the state save together.
  bool checkpoint_due() const {
    const at::Tensor due =
        at::tensor({writer_.checkpoint_due(step_) ? std::int64_t{1} : std::int64_t{0}}, at::kLong);
    run_.trained.shares.holders().broadcast(due)->wait();
    return *due.const_data_ptr<std::int64_t>() != 0;
  }

  void save() {
    or_name_checkpoint([&] { write_state(); });
  }

  void write_state() {
    writer_.save(run_.trained, {.step = step_,
                                .data_position = step_ * config_.accumulate,
                                .seed = config_.seed,
                                .world = run_.group.world(),
                                .parts = run_.keeper.parts(),
                                .seconds = seconds_in_all(),
                                .config = to_json(config_),
                                .losses = evaluated_});
    saved_ = step_;
  }

  TrainResult finish(TrainEnd end) {
    TrainResult last = result(end);
    last.waited = batches_.waited_seconds() / std::max(last.seconds, 1e-9);
    {
      const AveragedWeights averaged(run_.trained.average);
      writer_.write_weights(model_, step_, end == TrainEnd::stopped_early);
    }
    writer_.write_page(last);
    run_.group.barrier();
    return last;
  }

  TrainResult result(TrainEnd end) const {
    const BudgetKeeper& keeper = run_.keeper;
    TrainResult result{.end = end,
                       .step = step_,
                       .all_steps = schedule_.all_steps(),
                       .last_loss = last_.loss,
                       .evaluation = evaluation_,
                       .seconds = seconds_since(begin_),
                       .seconds_in_all = seconds_in_all(),
                       .memory = usage(),
                       .budget_bytes = keeper.named() ? keeper.plan().budget : 0,
                       .predicted_peak_bytes = keeper.plan().predicted.total_peak,
                       .parts = keeper.parts(),
                       .skipped = run_.batches.skipped()};
    result.stacks = model_.plan().stacks;
    result.memory.total_peak = std::max(result.memory.total_peak, keeper.highest());
    writer_.add_history(result);
    return result;
  }

  memory::Usage usage() const { return usage_of(model_, state_bytes_); }
  double seconds_in_all() const {
    return seconds_since(begin_) + (run_.resumed != nullptr ? run_.resumed->seconds : 0.0);
  }
  bool stop_asked() const { return events_.stop_asked && events_.stop_asked(); }
  void say(const std::string& what) const {
    if (events_.on_message) events_.on_message(what);
  }

  const ReadyRun& run_;
  const TrainConfig& config_;
  const RunSchedule& schedule_;
  models::Model& model_;
  const TrainEvents& events_;
  BatchFeed& batches_;
  RunWriter& writer_;
  const std::int64_t begun_at_;
  std::int64_t step_;   // that was done last
  std::int64_t saved_;  // of the last checkpoint that this process loaded or saved
  const std::int64_t state_bytes_;
  HeadFirst head_first_;
  std::vector<LossPoint> evaluated_;
  StepRecord last_;
  Evaluation evaluation_;
  Clock::time_point begin_;
};

}  // namespace

TrainResult run_training_loop(const ReadyRun& run) {
  const TrainConfig& config = run.config;
  const TrainEvents& events = run.events;
  data::Prefetcher batches(run.batches.train, {.workers = config.workers,
                                               .ahead = data::batches_ahead(config.workers),
                                               .first = done_before(run) * config.accumulate});
  if (run.data.text && events.on_message) {
    events.on_message("for comparison: guessing tokens by their frequency alone has a loss of " +
                      text::fixed(data::unigram_entropy(run.data.text->train), 3));
  }
  if (events.on_begin) events.on_begin(done_before(run), run.schedule.all_steps());
  RunWriter writer(config, run.folder, run.data, run.trained, run.resumed, events.on_message);
  BatchFeed feed(batches, run.trained.model, run.keeper.samples());
  return TrainingLoop(run, feed, writer).train();
}

}  // namespace pareprop::train
