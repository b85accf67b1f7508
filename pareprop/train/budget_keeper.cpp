#include "pareprop/train/budget_keeper.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "pareprop/data/prefetch.h"
#include "pareprop/data/text/token_masking.h"
#include "pareprop/memory/free_memory.h"
#include "pareprop/memory/meter.h"
#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/plan/step_times_file.h"
#include "pareprop/text/units.h"
#include "pareprop/train/field_error.h"

namespace pareprop::train {
namespace {

std::string bytes(std::int64_t count) { return text::bytes_text(static_cast<double>(count)); }

std::int64_t bytes_of(const models::Batch& batch) {
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
    throw std::invalid_argument(config.model + " with batch " + std::to_string(config.batch) +
                                " fits in no machine: " + error.what_without_backtrace());
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

// Gradients travel to other processes in copies.
std::int64_t travelling_bytes(const models::Model& model) {
  std::int64_t bytes = 0;
  for (const at::Tensor& weight : model.parameters()) {
    bytes += static_cast<std::int64_t>(weight.nbytes());
  }
  return bytes;
}

}  // namespace

BudgetKeeper::BudgetKeeper(const TrainConfig& config, const TrainingData& data,
                           const Processes& processes, Say say)
    : config_(config),
      say_(std::move(say)),
      named_(!config.budget.empty()),
      limit_(memory::tightest(memory::memory_limits(), processes.here)),
      // What is free does not count what this process holds already.
      budget_(named_ ? text::parse_byte_size(config.budget)
                     : plan::free_budget(limit_) + memory::usage().total_live),
      make_([config, &data] {
        const auto dtype = stream_dtype(parse_precision(config.precision));
        return make_model(config, data, {.dtype = dtype, .device = at::kMeta});
      }),
      shape_({.batch = config.batch,
              .precision = parse_precision(config.precision),
              .arithmetic = arithmetic_of(config),
              .optimizer_copies = config.ema > 0.0 ? 3 : 2,
              .accumulates = config.accumulate > 1}) {
  possible(config, [&] {
    const auto model = make_();
    shape_.sample_bytes = sample_bytes(config, data, *model);
    if (processes.all > 1) travelling_bytes_ = travelling_bytes(*model);
  });
  shape_.other_bytes = memory::usage().total_live + travelling_bytes_;
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
bool BudgetKeeper::fits_at_its_leanest() const {
  plan::DryStep dry(make_, shape_);
  const Network& network = dry.network();
  Mode mode = parse_mode(config_.mode);
  const bool is_auto = mode == Mode::automatic, plain = network.stacks().empty();
  if (is_auto) mode = plain ? Mode::checkpoint : Mode::reprop;
  StepPlan leanest = network.plan_of(mode);
  if (is_auto) leanest.recompute_between = true;
  return dry.run(leanest).at_most <= budget_;
}

void BudgetKeeper::expect_to_fit() {
  if (!possible(config_, [&] { return fits_at_its_leanest(); })) {
    const Mode mode = parse_mode(config_.mode);
    plan::Planner planner = make_planner();
    plan_ = mode == Mode::automatic ? planner.plan_step(budget_) : fixed_plan(planner, mode);
    if (!plan_.fits) {
      add_advice(plan_, planner);
      check_fits();
    }
  }
  memory::reset_peaks();
}

void BudgetKeeper::add_advice(plan::Plan& plan, plan::Planner& planner) const {
  const plan::Plan other = planner.plan(budget_);
  plan.smallest_budget = other.smallest_budget;
  plan.largest_batch = other.largest_batch;
  plan.micro_batch = other.micro_batch;
  plan.accumulate = other.accumulate;
}

std::string BudgetKeeper::why_not(const plan::Plan& plan) const {
  const bool is_auto = config_.mode == "auto";
  std::string why = named_ ? "" : limit_.name + " leaves too little: ";
  why += plan::does_not_fit(plan, config_.model + (is_auto ? "" : " in mode " + config_.mode),
                            config_.batch);
  if (!is_auto && plan.smallest_budget <= budget_) why += "; --mode auto would fit";
  return why;
}

void BudgetKeeper::check_fits() {
  if (plan_.fits) return;
  if (!config_.force) {
    const std::string why = why_not(plan_) + "; --force trains all the same";
    if (named_) throw FieldError("budget", why);
    throw std::invalid_argument(why);
  }
  if (!std::exchange(forced_, true) && say_) say_("going on with --force: " + why_not(plan_));
}

void BudgetKeeper::plan_by_shapes(
    const std::function<void(plan::Planner&, const plan::Plan&)>& show) {
  plan::Planner planner = make_planner();
  planner.use(plan::measure_macs_per_second());
  plan_ = planner.plan(budget_);
  if (const Mode mode = parse_mode(config_.mode); mode != Mode::automatic) {
    const plan::Plan fixed = fixed_plan(planner, mode);
    plan_.step = fixed.step;
    plan_.predicted = fixed.predicted;
    plan_.fits = fixed.fits;
    plan_.seconds = planner.seconds(fixed.step);
  }
  show(planner, plan_);
}

plan::Plan BudgetKeeper::decide(models::Model& model) {
  const Mode mode = parse_mode(config_.mode);
  plan::Planner planner = make_planner();
  // Nothing is faster than storing all, so times matter only where that does not fit.
  plan::Plan plan = fixed_plan(planner, mode == Mode::automatic ? Mode::stored : mode);
  if (mode == Mode::automatic && !plan.fits) {
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
  memory::reset_peaks();
  check_fits();
  if (!say_ || !plan_.fits) return;
  if (named_ || (config_.mode == "auto" && !plan_.step.stores_all())) {
    const std::string letters = plan::policy_letters(plan_.step);
    say_("plan: at most " + bytes(plan_.predicted.at_most) + " of " + plan::exact_bytes(budget_) +
         ", " + std::string(name(nearest_mode(plan_.step))) +
         (letters.empty() ? "" : " " + letters) +
         (plan_.step.recompute_between ? ", recomputed between stacks" : ""));
  }
}

void BudgetKeeper::check_machine(std::int64_t step) const {
  constexpr std::int64_t kSteps = 16, kLeast = std::int64_t{64} << 20;
  if (step % kSteps != 0) return;
  const std::int64_t free = memory::free_memory();
  if (free >= kLeast) return;
  throw std::runtime_error("only " + bytes(free) +
                           " of this machine's memory are left after step " + std::to_string(step) +
                           ", and the next one might swap: stop what else is running, or name a " +
                           "--budget below " + bytes(highest_));
}

bool BudgetKeeper::tighten(std::int64_t step) {
  constexpr double kNear = 0.98, kBeyond = 1.005;
  const std::int64_t peak = memory::usage().total_peak;
  highest_ = std::max(highest_, peak);
  if (forced_) return false;
  check_machine(step);
  if (!named_) return false;
  const auto limit = static_cast<double>(budget_);
  const auto expected = static_cast<double>(plan_.predicted.at_most + excess_);
  const bool beyond = static_cast<double>(peak) > kBeyond * expected;
  if (peak <= budget_ && !(beyond && static_cast<double>(peak) > kNear * limit)) return false;

  const std::string took = "step " + std::to_string(step) + " took " + bytes(peak) + " of " +
                           plan::exact_bytes(budget_) + ", predicted were " +
                           bytes(plan_.predicted.at_most);
  excess_ = std::max(excess_, peak - plan_.predicted.at_most);
  plan::Plan leaner = make_planner().plan_step(budget_ - excess_);
  const bool is_auto = config_.mode == "auto";
  if (!is_auto || !leaner.fits || leaner.step == plan_.step) {
    if (peak <= budget_) return false;
    throw std::runtime_error(took + ": the budget cannot be kept" +
                             (is_auto ? ", nothing leaner is left" : " in mode " + config_.mode) +
                             "; a larger --budget or a smaller --batch would do" +
                             (is_auto ? "" : ", or --mode auto"));
  }
  plan_ = std::move(leaner);
  plan_.budget = budget_;
  if (say_) say_(took + ": from now on " + plan::policy_letters(plan_.step));
  memory::reset_peaks();
  return true;
}

}  // namespace pareprop::train
