#include "pareprop/sweep/measure.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "pareprop/memory/meter.h"
#include "pareprop/reversible/auto_tuner.h"
#include "pareprop/reversible/torch_lanes.h"
#include "pareprop/sweep/quantile.h"

namespace pareprop {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

struct StepTimes {
  double forward_ms = 0.0;
  double backward_ms = 0.0;
  double loss = 0.0;
};

// Forward products, once more where they are recomputed, and two for each in the backward pass.
double products(Mode mode) { return mode == Mode::stored ? 3.0 : 4.0; }

class Contest {
 public:
  Contest(models::Model& model, const MeasureOptions& options)
      : model_(model), options_(options), batch_(model.example(options.batch, options.seed)) {
    base_ = {.precision = options.precision, .arithmetic = options.arithmetic};
    if (!model.stacks().empty()) {
      base_.executor = make_executor(model.weight_options().device(), base_.lanes);
    }
  }

  void enter(const Contestant& contestant) { enter({.row = {.contestant = contestant}}); }

  void enter(const BudgetedPlan& planned) {
    Entry entry;
    entry.row.contestant = {Mode::automatic, planned.budget};
    entry.plan = planned.step;
    enter(std::move(entry));
  }

  void take_turns(int round) {
    for (Entry& entry : entries_) {
      announce(entry.row.contestant, round);
      begin_turn(entry);
      for (int i = 0; i < options_.steps; ++i) {
        const StepTimes times = run_step(++steps_);
        entry.row.forward_ms.push_back(times.forward_ms);
        entry.row.backward_ms.push_back(times.backward_ms);
        entry.row.step_ms.push_back(times.forward_ms + times.backward_ms);
      }
    }
  }

  void trace() {
    for (Entry& entry : entries_) {
      announce(entry.row.contestant, options_.rounds + 1);
      TaskTimes& times = entry.row.tasks;
      begin_turn(entry, [&times](const TaskGraph& graph, const Timeline& timeline) {
        times.add(graph, timeline);
      });
      run_step(++steps_);
    }
  }

  std::vector<MeasureRow> rows() {
    std::vector<MeasureRow> rows;
    for (Entry& entry : entries_) rows.push_back(std::move(entry.row));
    return rows;
  }

 private:
  struct Entry {
    MeasureRow row;
    std::optional<plan::StepPlan> plan = {};
    std::vector<StackOptions> stacks = {};  // one a stack; none of a plain network
  };

  void enter(Entry entry) {
    announce(entry.row.contestant, 0);
    entry.stacks = chosen_options(entry);
    begin_turn(entry);
    memory::reset_peaks();
    entry.row.loss = run_step(0).loss;
    const memory::Usage usage = memory::usage();
    entry.row.activation_peak_bytes = usage.activation_peak;
    entry.row.peak_bytes = usage.total_peak;
    entry.row.flops_per_step =
        2.0 * options_.forward_macs * static_cast<double>(options_.batch) * products(entry);
    entries_.push_back(std::move(entry));
  }

  void announce(const Contestant& contestant, int round) const {
    if (options_.on_turn) options_.on_turn(contestant, round);
  }

  StepTimes run_step(std::uint64_t step) {
    const auto begin = Clock::now();
    const at::Tensor loss =
        model_.loss(batch_, {.pass = std::make_shared<Pass>(options_.seed, step)});
    const auto middle = Clock::now();
    loss.backward();
    const double value = loss.item<double>();
    for (auto& parameter : model_.parameters()) parameter.mutable_grad().reset();
    return {ms_between(begin, middle), ms_between(middle, Clock::now()), value};
  }

  void set_up(const Entry& entry) {
    if (entry.plan) return plan::apply(*entry.plan, model_, base_);
    StackOptions asked = base_;
    asked.mode = entry.row.contestant.mode;
    model_.set_stack_options(asked);
  }

  // Decided here, once: what `auto` tries is not what is timed.
  std::vector<StackOptions> chosen_options(const Entry& entry) {
    set_up(entry);
    const bool tries = !entry.plan && entry.row.contestant.mode == Mode::automatic;
    for (int i = 0; tries && i < 2 * AutoTuner::kTrials; ++i) run_step(++steps_);
    std::vector<StackOptions> chosen;
    for (const Stack& stack : model_.stacks()) chosen.push_back(stack->chosen_options());
    return chosen;
  }

  void begin_turn(const Entry& entry,
                  std::function<void(const TaskGraph&, const Timeline&)> on_trace = nullptr) {
    set_up(entry);
    for (std::size_t i = 0; i < entry.stacks.size(); ++i) {
      StackOptions own = entry.stacks[i];
      own.on_trace = on_trace;
      Stack stack = model_.stacks()[i];
      stack->set_options(std::move(own));
    }
  }

  // Where each block has its own policy, those that keep their tape compute three products, the
  // others four.
  static double products(const Entry& entry) {
    std::size_t blocks = 0, stored = 0;
    for (const StackOptions& stack : entry.stacks) {
      blocks += stack.policies.size();
      stored += static_cast<std::size_t>(
          std::count_if(stack.policies.begin(), stack.policies.end(), keeps_tape));
    }
    if (blocks == 0) return pareprop::products(entry.row.contestant.mode);
    return 4.0 - static_cast<double>(stored) / static_cast<double>(blocks);
  }

  models::Model& model_;
  const MeasureOptions& options_;
  const models::Batch batch_;
  StackOptions base_;
  std::vector<Entry> entries_;
  std::uint64_t steps_ = 0;
};

}  // namespace

double MeasureRow::median_ms() const { return quantile(step_ms, 0.5); }

double MeasureRow::best_ms() const { return quantile(step_ms, 0.0); }

std::vector<MeasureRow> measure(models::Model& model, const MeasureOptions& options) {
  model.train();
  Contest contest(model, options);
  for (const Mode mode : options.modes) contest.enter(Contestant{mode});
  for (const BudgetedPlan& planned : options.plans) contest.enter(planned);
  for (int round = 1; round <= options.rounds; ++round) contest.take_turns(round);
  contest.trace();
  return contest.rows();
}

}  // namespace pareprop
