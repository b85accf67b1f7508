#include "pareprop/train/budget_keeper.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
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
#include "pareprop/train/process_memory.h"

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
        model_of(config) + " with batch " + std::to_string(config.batch) +
        " needs more memory than any machine has: " + error.what_without_backtrace());
  }
}

// Each sequence may have one masked token more than the mean: its scores, and their gradient.
std::int64_t scores_bytes(const TrainConfig& config, const TrainingData& data,
                          const models::Model& model) {
  if (!data.text) return 0;
  const double mean = data::kMaskedShare * static_cast<double>(model.tokens());
  const auto scores =
      static_cast<double>(vocabulary_of(config, data.text->tokenizer)) * sizeof(float);
  return static_cast<std::int64_t>(std::ceil(2.0 * (std::ceil(mean) - mean) * scores));
}

}  // namespace

BudgetKeeper::BudgetKeeper(const TrainConfig& config, const TrainingData& data,
                           const Processes& processes, Say say)
    : config_(config),
      choices_(choices_of(config)),
      say_(std::move(say)),
      processes_(processes),
      device_(processes.device),
      limit_(plan::limit_of(device_, processes.on_device)),
      // What is free does not count what this process holds already.
      budget_(choices_.budget ? *choices_.budget
                              : plan::free_budget(device_, limit_) + usage_on(device_).total_live),
      make_([config, &data, dtype = stream_dtype(choices_.numerics.precision)] {
        return make_model(config, data, {.dtype = dtype, .device = at::kMeta});
      }),
      live_(usage_on(device_).total_live) {
  possible(config, [&] {
    const auto model = make_();
    batch_bytes_ = bytes_of(model->example(1, 0));
    scores_bytes_ = scores_bytes(config, data, *model);
    shape_ = shape_of(config, *model);
  });
}

plan::StepShape BudgetKeeper::shape_of(const TrainConfig& config, const Network& network) const {
  const TrainChoices choices = choices_of(config);
  const PlannedProcess process{.rank = processes_.rank,
                               .all = processes_.all,
                               .shard = choices.shard,
                               .update = choices.update,
                               .accumulates = config.accumulate > 1};
  plan::StepShape shape{.batch = config.batch,
                        .device = device_,
                        .precision = choices.numerics.precision,
                        .arithmetic = choices.numerics.arithmetic,
                        .optimizer_state = dry_optimizer(choices.optimizer),
                        .goes_back_twice = choices.update == Update::inside && config.clip > 0.0,
                        .other_bytes = live_,
                        .sample_bytes = scores_bytes_};
  if (device_.is_cpu()) {
    const std::int64_t waiting = data::batches_ahead(config.workers) + config.workers;
    shape.sample_bytes += waiting * batch_bytes_;
    shape.input_bytes = shape.sample_bytes + batch_bytes_;
  } else {
    shape.ahead_bytes = batch_bytes_;  // all others wait in the memory of the host
  }
  divide(shape, network, process);
  if (config.ema > 0.0) shape.optimizer_state = with_average(shape.optimizer_state);
  return shape;
}

plan::JointSearch BudgetKeeper::make_search(std::vector<plan::Departure> allowed) const {
  plan::JointSearch search(make_, shape_, std::move(allowed));
  if (!times_.empty()) search.use(times_);
  return search;
}

// One or two dry steps tell that most runs fit.
bool BudgetKeeper::fits_at_its_leanest() const {
  const auto fits = [&](std::int64_t parts) {
    plan::DryStep dry(make_, plan::part_of(shape_, parts));
    const Network& network = dry.network();
    StepPlan leanest = network.plan_of(is_auto() ? network.leanest_mode() : choices_.mode);
    if (is_auto()) leanest.recompute_between = true;
    return dry.run(leanest).at_most <= budget_;
  };
  if (fits(1)) return true;
  return is_auto() && config_.batch > 1 && !shape_.updates_inside && fits(config_.batch);
}

void BudgetKeeper::expect_to_fit() {
  if (!possible(config_, [&] { return fits_at_its_leanest(); })) {
    plan::JointSearch search = make_search();
    plan_ = is_auto() ? search.best(budget_) : search.in_mode(choices_.mode, budget_);
    if (!plan_.micro.fits) {
      search.add_figures(plan_, choices_.mode);
      check_fits();
    }
  }
  reset_peaks_on(device_);
}

ShapeOf BudgetKeeper::shape_of_any() const {
  return
      [this, network = make_()](const TrainConfig& config) { return shape_of(config, *network); };
}

plan::JointSearch BudgetKeeper::search_of_allowed() const {
  return make_search(departures(config_, allowed_ways(config_, choices_.allowed), shape_of_any()));
}

std::int64_t BudgetKeeper::settle() {
  if (!is_auto() || !choices_.allowed.any()) return 0;
  plan::JointSearch search = search_of_allowed();
  const plan::JointPlan best = possible(config_, [&] { return search.best(budget_); });
  reset_peaks_on(device_);
  return best.departure ? static_cast<std::int64_t>(*best.departure) + 1 : 0;
}

std::string BudgetKeeper::why_not(const plan::JointPlan& plan) const {
  return (named() ? "" : "not enough memory (limited by " + limit_.name + "): ") +
         plan::does_not_fit(
             plan.micro, config_.model + (is_auto() ? "" : " in mode " + config_.mode),
             config_.batch,
             what_would_help(config_, processes_.all, budget_, make_, shape_of_any()));
}

void BudgetKeeper::check_fits() {
  if (plan_.micro.fits) return;
  if (!config_.force) {
    const std::string why = why_not(plan_) + "; --force trains anyway";
    if (named()) throw FieldError("budget", why);
    throw std::invalid_argument(why);
  }
  if (!std::exchange(forced_, true) && say_)
    say_("training anyway because of --force: " + why_not(plan_));
}

void BudgetKeeper::plan_by_shapes(
    const std::function<void(plan::JointSearch&, const plan::JointPlan&)>& show) {
  plan::JointSearch search = search_of_allowed();
  search.use(plan::measure_macs_per_second(device_));
  plan_ = is_auto() ? search.best(budget_) : search.in_mode(choices_.mode, budget_);
  search.add_figures(plan_, choices_.mode);
  show(search, plan_);
}

plan::JointPlan BudgetKeeper::decide(models::Model& model, std::optional<std::int64_t> parts) {
  plan::JointSearch search = make_search();
  if (is_auto() && parts) search.only(*parts);
  plan::JointPlan plan = search.in_mode(is_auto() ? Mode::stored : choices_.mode, budget_);
  if (is_auto() && !plan.micro.fits) {
    times_ = plan::learn_times(search, model,
                               {.budget = budget_,
                                .network = plan::network_name(config_.model, model.tokens()),
                                .folder = plan::cache_folder(),
                                .on_message = say_});
    plan = search.best(budget_);
  }
  if (!plan.micro.fits && !parts) search.add_figures(plan, choices_.mode);
  return plan;
}

void BudgetKeeper::plan(models::Model& model, std::int64_t live,
                        std::optional<std::int64_t> parts) {
  shape_.other_bytes += live - std::exchange(live_, live);
  plan_ = decide(model, parts);
  if (parts && !plan_.micro.fits) {
    plan_ = decide(model, std::nullopt);
    if (say_ && plan_.micro.fits) {
      say_("a batch is computed in " + std::to_string(plan_.parts) + " parts now, and was in " +
           std::to_string(*parts) + ": sums are rounded differently");
    }
  }
  reset_peaks_on(device_);
  check_fits();
  if (!say_ || !plan_.micro.fits) return;
  const StepPlan& step = plan_.micro.step;
  if (named() || (is_auto() && (!step.stores_all() || plan_.parts > 1))) {
    const std::string letters = plan::policy_letters(step);
    say_("plan: at most " + bytes(plan_.micro.predicted.at_most) + " of " +
         plan::exact_bytes(budget_) +
         (plan_.parts > 1 ? ", in " + std::to_string(plan_.parts) + " parts of " +
                                std::to_string(samples()) + " samples"
                          : "") +
         ", " + std::string(name(nearest_mode(step))) + (letters.empty() ? "" : " " + letters) +
         (step.recompute_between ? ", layers between stacks are recomputed" : ""));
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
  const auto expected = static_cast<double>(plan_.micro.predicted.at_most + excess_);
  const bool beyond = static_cast<double>(peak) > kBeyond * expected;
  if (peak <= budget_ && !(beyond && static_cast<double>(peak) > kNear * limit)) return false;

  const std::string took = "step " + std::to_string(step) + " took " + bytes(peak) + " (budget " +
                           plan::exact_bytes(budget_) + ", predicted " +
                           bytes(plan_.micro.predicted.at_most) + ")";
  excess_ = std::max(excess_, peak - plan_.micro.predicted.at_most);
  // In as many parts as before: all processes have the same.
  plan::JointSearch search = make_search();
  search.only(plan_.parts);
  plan::JointPlan leaner = search.best(budget_ - excess_);
  if (!is_auto() || !leaner.micro.fits || leaner.micro.step == plan_.micro.step) {
    if (peak <= budget_) return false;
    throw std::runtime_error(
        took + ": the budget cannot be kept" +
        (is_auto() ? ", because there is no leaner plan" : " in mode " + config_.mode) +
        "; use a larger --budget or a smaller --batch" + (is_auto() ? "" : ", or --mode auto"));
  }
  plan_ = std::move(leaner);
  plan_.micro.budget = budget_;
  if (say_) say_(took + "; the new plan is " + plan::policy_letters(plan_.micro.step));
  reset_peaks_on(device_);
  return true;
}

}  // namespace pareprop::train
