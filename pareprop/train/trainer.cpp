#include "pareprop/train/trainer.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>

#include "pareprop/models/named_tensors.h"
#include "pareprop/models/weights.h"
#include "pareprop/reversible/torch_lanes.h"
#include "pareprop/text/fixed.h"
#include "pareprop/train/budget_keeper.h"
#include "pareprop/train/config_agreement.h"
#include "pareprop/train/field_error.h"
#include "pareprop/train/first_weights.h"
#include "pareprop/train/learning_rate.h"
#include "pareprop/train/resume.h"
#include "pareprop/train/run_files.h"
#include "pareprop/train/run_trace.h"
#include "pareprop/train/run_writer.h"
#include "pareprop/train/train_step.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Run {
 public:
  Run(const TrainConfig& config, distributed::ProcessGroup& group, const TrainEvents& events)
      : config_(config),
        group_(group),
        events_(events),
        writer_(config_, group.rank() == 0, events.on_message),
        checkpoint_(find_checkpoint(config, group.world(), events.on_message)),
        data_(open_data(with_tokenizer_of_run(config, checkpoint_.has_value()))),
        model_(make_fitting_model()),
        batches_(
            make_batches(config, data_, *model_, {.rank = group.rank(), .world = group.world()})),
        buckets_(*model_, group) {
    set_first_weights(*model_, config);
    optimizer_.emplace(models::trained_parameters(*model_),
                       AdamWOptions{.beta1 = config.beta1,
                                    .beta2 = config.beta2,
                                    .eps = config.eps,
                                    .weight_decay = config.weight_decay});
    if (config.ema > 0.0) average_.emplace(models::trained_parameters(*model_), config.ema);
    all_steps_ = config.steps > 0
                     ? config.steps
                     : std::max<std::int64_t>(1, std::llround(config.epochs * steps_of_epoch()));
    rate_ = {.peak = config.learning_rate,
             .last = config.last_learning_rate,
             .warmup = std::llround(config.warmup * static_cast<double>(all_steps_)),
             .total = all_steps_,
             .decay = decay_of(config.decay)};
    rate_.check();
    if (checkpoint_) {
      check_tokenizer(config_, data_);
      go_on();
    }
    check_steps();
    if (has_ended()) return;
    model_->set_options(
        {.precision = parse_precision(config_.precision), .arithmetic = arithmetic_of(config_)});
    keeper_->plan(*model_, live_besides());
    model_->set_plan(keeper_->plan().step);
    for (const Stack& stack : model_->stacks()) {
      watches_.push_back(stack->watch({.on_block_gradients = buckets_.on_block()}));
    }
    trace_.emplace(config_, *model_, group_.rank(), step_, events_.on_message);
    writer_.own_folder();
  }

  TrainResult train() {
    if (ended_) {
      return {.end = TrainEnd::nothing_to_do, .step = step_, .all_steps = all_steps_};
    }
    data::Prefetcher batches(batches_.train, {.workers = config_.workers,
                                              .ahead = data::batches_ahead(config_.workers),
                                              .first = step_ * config_.accumulate});
    if (data_.text) {
      say("a guess that knows only how often each token occurs has a loss of " +
          text::fixed(data::unigram_entropy(data_.text->train), 3));
    }
    if (events_.on_begin) events_.on_begin(step_, all_steps_);
    writer_.begin(data_, *model_, checkpoint_ ? &checkpoint_->state : nullptr);
    if (is_evaluated()) {
      const AveragedWeights averaged(average_ ? &*average_ : nullptr);
      writer_.keep_if_best(*model_, step_);
    }
    model_->train();
    const std::int64_t first = step_;
    begin_ = std::chrono::steady_clock::now();
    std::optional<TrainEnd> end = evaluate_if_due();
    while (!end && step_ < all_steps_) {
      train_step(batches, first);
      // Before an evaluation, which may take long, and after it.
      if (writer_.checkpoint_due(step_)) save();
      if (stopping_ && step_ < all_steps_) {
        end = stopping_;  // an evaluation that is due comes first when the run goes on
      } else {
        end = evaluate_if_due();
      }
      if (saved_ < step_ && (end || step_ == all_steps_)) save();
    }
    return finish(end.value_or(TrainEnd::finished), batches);
  }

 private:
  // What cannot fit is refused before it takes memory, and nobody takes any before all have seen
  // how much there is.
  std::shared_ptr<models::Model> make_fitting_model() {
    keeper_.emplace(config_, data_, Processes{.all = group_.world(), .here = group_.local_world()},
                    events_.on_message);
    keeper_->expect_to_fit();
    group_.barrier();
    return make_model(
        config_, data_,
        {.dtype = stream_dtype(parse_precision(config_.precision)), .seed = config_.seed});
  }

  double steps_of_epoch() const {
    return static_cast<double>(batches_.train->per_epoch()) /
           static_cast<double>(config_.accumulate);
  }
  std::int64_t steps_between_evaluations() const {
    if (config_.eval_every > 0) return config_.eval_every;
    return std::max<std::int64_t>(1, std::llround(steps_of_epoch()));
  }
  bool is_due(std::int64_t every) const { return step_ % every == 0; }
  Trained trained() { return {*model_, *optimizer_, average_ ? &*average_ : nullptr}; }
  void say(const std::string& what) const {
    if (events_.on_message) events_.on_message(what);
  }

  void go_on() {
    load(*checkpoint_, trained());
    saved_ = step_ = checkpoint_->state.step;
    evaluated_ = checkpoint_->state.losses;
    if (checkpoint_->state.data_position != step_ * config_.accumulate) {
      throw std::invalid_argument(checkpoint_->folder.string() +
                                  ": its data position does not follow from its step");
    }
    say("going on from " + checkpoint_->folder.string());
  }

  // Processes that see different folders would find different checkpoints.
  void check_steps() {
    const at::Tensor sums = at::tensor({step_, step_ * step_}, at::kLong);
    group_.all_reduce(sums)->wait();
    const std::int64_t* sum = sums.const_data_ptr<std::int64_t>();
    if (sum[0] * sum[0] != sum[1] * group_.world()) {
      throw std::invalid_argument(
          "rank " + std::to_string(group_.rank()) + " begins at step " + std::to_string(step_) +
          ", others at another: expected one folder that all processes see, " + config_.out);
    }
    if (config_.trace > all_steps_) {
      throw FieldError("trace", "expected a step of the run, 1 to " + std::to_string(all_steps_) +
                                    ", got " + std::to_string(config_.trace));
    }
    if (step_ <= all_steps_) return;
    throw std::invalid_argument("steps: " + std::to_string(all_steps_) +
                                " are asked for (--steps or --epochs), and " +
                                std::to_string(step_) + " are done: expected at least as many");
  }

  // True when the run that is resumed has nothing left to do. What decides is on the writer's disk.
  bool has_ended() {
    const bool done = checkpoint_ && is_evaluated() && (step_ == all_steps_ || bad_evaluations());
    const at::Tensor ended = at::tensor({done && fs::exists(weights_file(config_.out)) ? 1 : 0});
    group_.broadcast(ended);
    ended_ = ended.item<std::int64_t>() != 0;
    return ended_;
  }

  // Tensors that are neither weights nor the optimizer's.
  std::int64_t live_besides() const {
    const memory::Usage usage = memory::usage();
    return usage.total_live - usage.live_of(memory::Tag::parameters) -
           usage.live_of(memory::Tag::optimizer);
  }

  // The step was done: what is wrong is that the next one might take too much.
  void keep_budget() {
    try {
      if (keeper_->tighten(step_)) model_->set_plan(keeper_->plan().step);
    } catch (...) {
      save_before_failing();
      throw;
    }
  }

  void train_step(data::Prefetcher& batches, std::int64_t first) {
    writer_.check_folder();
    const auto begin = std::chrono::steady_clock::now();
    const double waited_before = batches.waited_seconds();
    const double rate = rate_.at(step_);
    const bool out_of_time =
        config_.time_limit > 0.0 && seconds_since(begin_) > 60.0 * config_.time_limit;
    const bool asked = events_.stop_asked && events_.stop_asked();
    const StepOutcome outcome = step_or_save(batches, rate, asked || out_of_time);
    trace_->finish();
    if (!outcome.not_finite.empty()) refuse_step(outcome);
    ++step_;
    if (outcome.stop) {
      stopping_ = out_of_time && !asked ? TrainEnd::out_of_time : TrainEnd::stopped_by_user;
    }
    const double seconds = seconds_since(begin);
    const memory::Usage usage = memory::usage();
    last_ = {.step = step_,
             .epoch = static_cast<double>(step_) / steps_of_epoch(),
             .loss = outcome.loss,
             .accuracy = outcome.accuracy,
             .learning_rate = rate,
             .gradient_norm = outcome.gradient_norm,
             .samples_per_s =
                 static_cast<double>(config_.batch * config_.accumulate * group_.world()) / seconds,
             .waited = (batches.waited_seconds() - waited_before) / seconds,
             .drift = model_->drift().worst,
             .peak_bytes = usage.total_peak,
             .predicted_peak_bytes = keeper_->plan().predicted.total_peak};
    keep_budget();
    if (is_due(config_.log_every) || step_ == first + 1 || step_ == all_steps_) writer_.add(last_);
    if (events_.on_step) {
      const double each = seconds_since(begin_) / static_cast<double>(step_ - first);
      events_.on_step(last_, all_steps_, each * static_cast<double>(all_steps_ - step_));
    }
  }

  // A step that fails has not touched the weights: what was trained before it is not lost.
  StepOutcome step_or_save(data::Prefetcher& batches, double rate, bool wants_stop) {
    try {
      return run_step({*model_, *optimizer_, average_ ? &*average_ : nullptr, buckets_, group_,
                       trace_->begin(step_ + 1)},
                      {.batch = config_.batch,
                       .accumulate = config_.accumulate,
                       .clip = config_.clip,
                       .seed = config_.seed},
                      batches, rate, wants_stop);
    } catch (...) {
      save_before_failing();
      throw;
    }
  }

  void save_before_failing() {
    try {
      if (step_ > 0) save();
    } catch (const std::exception& error) {
      say(std::string("the state after step ") + std::to_string(step_) +
          " could not be saved: " + error.what());
    }
  }

  // The weights are those before the step that went wrong.
  [[noreturn]] void refuse_step(const StepOutcome& outcome) {
    save();
    throw std::runtime_error("step " + std::to_string(step_ + 1) + ": " + outcome.not_finite +
                             " is not finite (loss " + std::to_string(outcome.loss) +
                             "). The state before it is saved in " +
                             checkpoint_folder(config_).string() +
                             "; try a lower --learning-rate, a longer --warmup or --clip");
  }

  bool is_evaluated() const { return !evaluated_.empty() && evaluated_.back().step >= step_; }

  // Why training ends after it, if it does.
  std::optional<TrainEnd> evaluate_if_due() {
    const bool due = step_ > 0 && (is_due(steps_between_evaluations()) || step_ == all_steps_);
    if (due && !is_evaluated()) {
      try {
        if (const auto end = evaluate_now()) return end;
      } catch (...) {
        save_before_failing();
        throw;
      }
      if (writer_.saves_on_the_way() || step_ == all_steps_) save();
    }
    if (due && bad_evaluations() && step_ < all_steps_) return TrainEnd::stopped_early;
    return std::nullopt;
  }

  // Why training ends instead, if it was asked to: the state is saved first then.
  std::optional<TrainEnd> evaluate_now() {
    Ema* const average = average_ ? &*average_ : nullptr;
    std::optional<AveragedWeights> averaged(std::in_place, average);
    EvaluateOptions options{.workers = config_.workers};
    options.on_batch = [&](std::int64_t done, std::int64_t all) {
      writer_.check_folder();
      if (saved_ < step_ && writer_.checkpoint_due(step_)) {
        averaged.reset();
        save();
        averaged.emplace(average);
      }
      if (events_.on_evaluating) events_.on_evaluating(done, all);
      return events_.stop_asked && events_.stop_asked();
    };
    const Evaluation found = evaluate(*model_, batches_.test, group_, options);
    if (!found.whole) {
      averaged.reset();
      if (saved_ < step_) save();
      return TrainEnd::stopped_by_user;
    }
    if (found.rows == 0) {
      evaluated_.push_back({step_, found.loss});
      say("step " + std::to_string(step_) +
          ": there is no evaluation: none of the data held out for it could be read");
      return std::nullopt;
    }
    evaluation_ = found;
    const EvaluationRecord record{.step = step_, .loss = found.loss, .accuracy = found.accuracy};
    evaluated_.push_back({step_, found.loss});
    writer_.add(record, *model_, found);
    averaged.reset();
    writer_.write_page(result(TrainEnd::running));
    if (events_.on_evaluation) events_.on_evaluation(record);
    return std::nullopt;
  }

  bool bad_evaluations() const {
    return config_.early_stop > 0 && since_best(evaluated_) >= config_.early_stop;
  }

  void save() {
    writer_.save(trained(), {.step = step_,
                             .data_position = step_ * config_.accumulate,
                             .seed = config_.seed,
                             .world = group_.world(),
                             .seconds = seconds_in_all(),
                             .config = to_json(config_),
                             .losses = evaluated_});
    saved_ = step_;
  }

  double seconds_in_all() const {
    return seconds_since(begin_) + (checkpoint_ ? checkpoint_->state.seconds : 0.0);
  }

  TrainResult result(TrainEnd end) const {
    TrainResult result{.end = end,
                       .step = step_,
                       .all_steps = all_steps_,
                       .last_loss = last_.loss,
                       .evaluation = evaluation_,
                       .seconds = seconds_since(begin_),
                       .seconds_in_all = seconds_in_all(),
                       .memory = memory::usage(),
                       .budget_bytes = keeper_->named() ? keeper_->plan().budget : 0,
                       .predicted_peak_bytes = keeper_->plan().predicted.total_peak,
                       .skipped = batches_.skipped()};
    if (!model_->stacks().empty()) result.stacks = model_->plan().stacks;
    result.memory.total_peak = std::max(result.memory.total_peak, keeper_->highest());
    writer_.add_history(result);
    return result;
  }

  TrainResult finish(TrainEnd end, const data::Prefetcher& batches) {
    TrainResult last = result(end);
    last.waited = batches.waited_seconds() / std::max(last.seconds, 1e-9);
    {
      const AveragedWeights averaged(average_ ? &*average_ : nullptr);
      writer_.write_weights(*model_, step_, end == TrainEnd::stopped_early);
    }
    writer_.write_page(last);
    group_.barrier();
    return last;
  }

  const TrainConfig config_;
  distributed::ProcessGroup& group_;
  const TrainEvents& events_;
  RunWriter writer_;
  const std::optional<StoredCheckpoint> checkpoint_;
  const TrainingData data_;
  std::optional<BudgetKeeper> keeper_;
  const std::shared_ptr<models::Model> model_;
  const BatchSets batches_;
  distributed::GradientBuckets buckets_;
  std::optional<AdamW> optimizer_;
  std::optional<Ema> average_;
  std::vector<Watch> watches_;
  std::optional<RunTrace> trace_;
  LearningRate rate_;
  std::int64_t step_ = 0, all_steps_ = 0;
  std::int64_t saved_ = 0;  // the step of the last checkpoint that this process saved
  bool ended_ = false;      // before this process began
  std::vector<LossPoint> evaluated_;
  std::optional<TrainEnd> stopping_;
  StepRecord last_;
  Evaluation evaluation_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace

TrainResult train(const TrainConfig& config, distributed::ProcessGroup& group,
                  const TrainEvents& events) {
  check(config);
  check_same_config(config, group);
  return Run(config, group, events).train();
}

}  // namespace pareprop::train
