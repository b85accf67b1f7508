#include "pareprop/train/budget_keeper.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "pareprop/data/prefetch.h"
#include "pareprop/data/text/token_masking.h"
#include "pareprop/memory/free_memory.h"
#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/plan/step_times_file.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/text/units.h"
#include "pareprop/train/learner.h"
#include "pareprop/train/model_for_data.h"

namespace pareprop::train {
namespace {

std::string bytes(std::int64_t count) { return text::bytes_text(static_cast<double>(count)); }

std::int64_t bytes_of(const data::Batch& batch) {
  std::int64_t sum = 0;
  for (const at::Tensor& t : {batch.input, batch.target, batch.mask}) {
    if (t.defined()) sum += static_cast<std::int64_t>(t.nbytes());
  }
  return sum;
}

// Does what only shapes are needed for. Those that no memory could hold are a mistake.
template <typename Action>
auto possible(const TrainConfig& config, Action&& action) {
  try {
    return action();
  } catch (const c10::OutOfMemoryError& error) {
    throw std::invalid_argument(
        config.model + " with batch " + std::to_string(config.batch) +
        " needs more memory than any machine has: " + error.what_without_backtrace());
  }
}

// Of each sample of the batches that wait while a step runs.
std::int64_t sample_bytes(const TrainConfig& config, const TrainingData& data,
                          const models::Model& model) {
  const int waiting = data::batches_ahead(config.workers) + config.workers;
  std::int64_t bytes = waiting * bytes_of(model.example(1, 0));
  // Each sequence may have one masked token more than the mean: its scores, and their gradient.
  if (data.text) {
    const double mean = data::kMaskedShare * static_cast<double>(model.tokens());
    const auto scores = static_cast<double>(data.text->tokenizer.size()) * sizeof(float);
    bytes += static_cast<std::int64_t>(std::ceil(2.0 * (std::ceil(mean) - mean) * scores));
  }
  return bytes;
}

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const at::Tensor& tensor) {
                           return sum + static_cast<std::int64_t>(tensor.nbytes());
                         });
}

// Gradients travel to other processes in copies: all of them, or, when the optimizer steps inside
// the backward pass, those of two blocks; those outside of the stacks wait for its end.
std::int64_t travelling_bytes(const models::Model& model, Update update) {
  const std::int64_t all = bytes_of(model.weights());
  if (update == Update::after) return all;
  std::int64_t largest = 0;  // block
  for (const Stack& stack : model.stacks()) {
    if (stack->depth() > 0)
      largest = std::max(largest, bytes_of(stack->parameters()) / stack->depth());
  }
  const std::int64_t outside = all - bytes_of(model.block_weights());
  return 2 * std::max(largest, outside);
}

plan::StepShape with_optimizer_of(const TrainConfig& config, plan::StepShape shape) {
  const TrainChoices choices = choices_of(config);
  shape.optimizer_state = optimizer_state(config, choices);
  shape.updates_inside = choices.update == Update::inside;
  shape.goes_back_twice = shape.updates_inside && config.clip > 0.0;
  return shape;
}

}  // namespace

BudgetKeeper::BudgetKeeper(const TrainConfig& config, const TrainingData& data,
                           const Processes& processes, Say say)
    : config_(config),
      choices_(choices_of(config)),
      say_(std::move(say)),
      device_(processes.device),
      limit_(plan::limit_of(device_, processes.here)),
      // What is free does not count what this process holds already.
      budget_(choices_.budget
                  ? *choices_.budget
                  : (device_.is_cpu() ? plan::free_budget(limit_) : plan::free_budget(device_)) +
                        usage_on(device_).total_live),
      make_([config, &data, dtype = stream_dtype(choices_.numerics.precision)] {
        return make_model(config, data, {.dtype = dtype, .device = at::kMeta});
      }),
      shape_(with_optimizer_of(config, {.batch = config.batch,
                                        .device = device_,
                                        .precision = choices_.numerics.precision,
                                        .arithmetic = choices_.numerics.arithmetic,
                                        .accumulates = config.accumulate > 1})) {
  possible(config, [&] {
    const auto model = make_();
    shape_.sample_bytes = sample_bytes(config, data, *model);
    if (processes.all > 1) travelling_bytes_ = travelling_bytes(*model, choices_.update);
  });
  shape_.other_bytes = usage_on(device_).total_live + travelling_bytes_;
}

plan::Planner BudgetKeeper::make_planner() const {
  plan::Planner planner(make_, shape_);
  if (times_) planner.use(*times_);
  return planner;
}

plan::Plan BudgetKeeper::fixed_plan(plan::Planner& planner, Mode mode) const {
  plan::Plan fixed;
  fixed.step = planner.all(mode);
  fixed.predicted = planner.predict(fixed.step);
  fixed.budget = budget_;
  fixed.fits = fixed.predicted.at_most <= budget_;
  return fixed;
}

// One dry step tells that most runs fit.
bool BudgetKeeper::fits_at_its_leanest(const plan::StepShape& shape) const {
  plan::DryStep dry(make_, shape);
  const Network& network = dry.network();
  const Mode leanest_of_auto = network.stacks().empty() ? Mode::checkpoint : Mode::reprop;
  StepPlan leanest = network.plan_of(is_auto() ? leanest_of_auto : choices_.mode);
  if (is_auto()) leanest.recompute_between = true;
  return dry.run(leanest).at_most <= budget_;
}

void BudgetKeeper::expect_to_fit() {
  if (!possible(config_, [&] { return fits_at_its_leanest(shape_); })) {
    plan::Planner planner = make_planner();
    plan_ = is_auto() ? planner.plan_step(budget_) : fixed_plan(planner, choices_.mode);
    if (!plan_.fits) {
      add_advice(plan_, planner);
      check_fits();
    }
  }
  reset_peaks_on(device_);
}

void BudgetKeeper::add_advice(plan::Plan& plan, plan::Planner& planner) const {
  const plan::Plan other = planner.plan(budget_);
  plan.smallest_budget = other.smallest_budget;
  plan.largest_batch = other.largest_batch;
  plan.micro_batch = other.micro_batch;
  plan.accumulate = other.accumulate;
}

// Flags that leave the batch and the network as they are: the first that would fit.
std::string BudgetKeeper::what_would_help() const {
  const bool may_update = choices_.update == Update::after && config_.accumulate == 1;
  const bool may_shrink = config_.optimizer_state == "fp32" && config_.optimizer != "adafactor" &&
                          config_.precision != "fp64";
  for (const auto& [inside, eight_bits] :
       {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
    if ((inside && !may_update) || (eight_bits && !may_shrink)) continue;
    TrainConfig other = config_;
    std::string flags;
    if (inside) {
      other.update = "inside";
      flags += " --update inside";
    }
    if (eight_bits) {
      other.optimizer_state = "8bit";
      flags += " --optimizer-state 8bit";
    }
    if (fits_at_its_leanest(with_optimizer_of(other, shape_))) return ";" + flags + " would fit";
  }
  return "";
}

std::string BudgetKeeper::why_not(const plan::Plan& plan) const {
  std::string why = named() ? "" : "not enough memory (limited by " + limit_.name + "): ";
  why += plan::does_not_fit(plan, config_.model + (is_auto() ? "" : " in mode " + config_.mode),
                            config_.batch);
  if (!is_auto() && plan.smallest_budget <= budget_) return why + "; --mode auto would fit";
  return why + what_would_help();
}

void BudgetKeeper::check_fits() {
  if (plan_.fits) return;
  if (!config_.force) {
    const std::string why = why_not(plan_) + "; --force trains anyway";
    if (named()) throw FieldError("budget", why);
    throw std::invalid_argument(why);
  }
  if (!std::exchange(forced_, true) && say_)
    say_("training anyway because of --force: " + why_not(plan_));
}

void BudgetKeeper::plan_by_shapes(
    const std::function<void(plan::Planner&, const plan::Plan&)>& show) {
  plan::Planner planner = make_planner();
  planner.use(plan::measure_macs_per_second(device_));
  plan_ = planner.plan(budget_);
  if (!is_auto()) {
    const plan::Plan fixed = fixed_plan(planner, choices_.mode);
    plan_.step = fixed.step;
    plan_.predicted = fixed.predicted;
    plan_.fits = fixed.fits;
    plan_.seconds = planner.seconds(fixed.step);
  }
  show(planner, plan_);
}

plan::Plan BudgetKeeper::decide(models::Model& model) {
  plan::Planner planner = make_planner();
  // Nothing is faster than storing all, so times matter only where that does not fit.
  plan::Plan plan = fixed_plan(planner, is_auto() ? Mode::stored : choices_.mode);
  if (is_auto() && !plan.fits) {
    times_ = plan::learn_times(planner, model,
                               {.budget = budget_,
                                .network = plan::network_name(config_.model, model.tokens()),
                                .folder = plan::cache_folder(),
                                .on_message = say_});
    plan = planner.plan_step(budget_);
  }
  if (!plan.fits) add_advice(plan, planner);
  return plan;
}

void BudgetKeeper::plan(models::Model& model, std::int64_t live) {
  shape_.other_bytes = live + travelling_bytes_;
  plan_ = decide(model);
  reset_peaks_on(device_);
  check_fits();
  if (!say_ || !plan_.fits) return;
  if (named() || (is_auto() && !plan_.step.stores_all())) {
    const std::string letters = plan::policy_letters(plan_.step);
    say_("plan: at most " + bytes(plan_.predicted.at_most) + " of " + plan::exact_bytes(budget_) +
         ", " + std::string(name(nearest_mode(plan_.step))) +
         (letters.empty() ? "" : " " + letters) +
         (plan_.step.recompute_between ? ", layers between stacks are recomputed" : ""));
  }
}

void BudgetKeeper::check_machine(std::int64_t step) const {
  constexpr std::int64_t kSteps = 16, kLeast = std::int64_t{64} << 20;
  if (step % kSteps != 0) return;
  const std::int64_t free = memory::free_memory();
  if (free >= kLeast) return;
  throw std::runtime_error("only " + bytes(free) + " of this machine's memory is free after step " +
                           std::to_string(step) +
                           ", and the next step might swap: stop other programs, or set a " +
                           "--budget below " + bytes(highest_));
}

bool BudgetKeeper::tighten(std::int64_t step) {
  constexpr double kNear = 0.98, kBeyond = 1.005;
  const std::int64_t peak = usage_on(device_).total_peak;
  highest_ = std::max(highest_, peak);
  if (forced_) return false;
  check_machine(step);
  if (!named()) return false;
  const auto limit = static_cast<double>(budget_);
  const auto expected = static_cast<double>(plan_.predicted.at_most + excess_);
  const bool beyond = static_cast<double>(peak) > kBeyond * expected;
  if (peak <= budget_ && !(beyond && static_cast<double>(peak) > kNear * limit)) return false;

  const std::string took = "step " + std::to_string(step) + " took " + bytes(peak) + " (budget " +
                           plan::exact_bytes(budget_) + ", predicted " +
                           bytes(plan_.predicted.at_most) + ")";
  excess_ = std::max(excess_, peak - plan_.predicted.at_most);
  plan::Plan leaner = make_planner().plan_step(budget_ - excess_);
  if (!is_auto() || !leaner.fits || leaner.step == plan_.step) {
    if (peak <= budget_) return false;
    throw std::runtime_error(
        took + ": the budget cannot be kept" +
        (is_auto() ? ", because there is no leaner plan" : " in mode " + config_.mode) +
        "; use a larger --budget or a smaller --batch" + (is_auto() ? "" : ", or --mode auto"));
  }
  plan_ = std::move(leaner);
  plan_.budget = budget_;
  if (say_) say_(took + "; the new plan is " + plan::policy_letters(plan_.step));
  reset_peaks_on(device_);
  return true;
}

}  // namespace pareprop::train
