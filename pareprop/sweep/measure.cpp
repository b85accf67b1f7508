#include "pareprop/sweep/measure.h"

#include <algorithm>

#include "pareprop/device/moment.h"
#include "pareprop/reversible/added_gradients.h"
#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/sweep/quantile.h"

namespace pareprop {
namespace {

struct TimedStep {
  double forward_ms = 0.0;
  double backward_ms = 0.0;
  double loss = 0.0;
};

// Products of a step for each of the forward pass: two more in the backward pass, and one more in
// blocks that are recomputed.
double products(const StepPlan& plan) {
  std::size_t blocks = 0, kept = 0;
  for (const StackPlan& stack : plan.stacks) {
    blocks += stack.policies.size();
    kept += static_cast<std::size_t>(
        std::count_if(stack.policies.begin(), stack.policies.end(), keeps_tape));
  }
  return blocks == 0 ? 3.0 : 4.0 - static_cast<double>(kept) / static_cast<double>(blocks);
}

class Contest {
 public:
  Contest(models::Model& model, const MeasureOptions& options)
      : restored_(model),
        model_(model),
        options_(options),
        batch_(model.example(options.batch, options.seed)) {
    model.set_numerics(options.precision, options.arithmetic);
  }

  void enter(const Contestant& contestant, StepPlan plan, std::int64_t parts = 1) {
    announce(contestant, 0);
    Entry entry{.row = {.contestant = contestant}, .plan = std::move(plan), .parts = parts};
    model_.set_plan(entry.plan);
    reset_peaks_on(device_of(model_));
    entry.row.loss = run_step(0, entry.parts).loss;
    const memory::Usage usage = usage_of(model_);
    entry.row.activation_peak_bytes = usage.activation_peak;
    entry.row.peak_bytes = usage.total_peak;
    entry.row.reserved_peak_bytes = usage.reserved_peak;
    entry.row.flops_per_step =
        2.0 * options_.forward_macs * static_cast<double>(options_.batch) * products(entry.plan);
    entries_.push_back(std::move(entry));
  }

  void take_turns(int round) {
    for (Entry& entry : entries_) {
      announce(entry.row.contestant, round);
      model_.set_plan(entry.plan);
      for (int i = 0; i < options_.steps; ++i) {
        const TimedStep times = run_step(++steps_, entry.parts);
        entry.row.forward_ms.push_back(times.forward_ms);
        entry.row.backward_ms.push_back(times.backward_ms);
        entry.row.step_ms.push_back(times.forward_ms + times.backward_ms);
      }
    }
  }

  void trace() {
    for (Entry& entry : entries_) {
      announce(entry.row.contestant, options_.rounds + 1);
      model_.set_plan(entry.plan);
      std::vector<Watch> watches;
      for (const Stack& stack : model_.stacks()) {
        watches.push_back(
            stack->watch({.on_backward = [&times = entry.row.tasks](const TaskGraph& graph,
                                                                    const Timeline& timeline) {
              times.add(graph, timeline);
            }}));
      }
      run_step(++steps_, entry.parts);
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
    StepPlan plan;
    std::int64_t parts = 1;
  };

  void announce(const Contestant& contestant, int round) const {
    if (options_.on_turn) options_.on_turn(contestant, round);
  }

  TimedStep run_step(std::uint64_t step, std::int64_t parts) {
    const c10::Device device = batch_.input.device();
    const std::int64_t samples = options_.batch / parts;
    const auto checks = std::make_shared<DeferredChecks>();
    std::shared_ptr<GradientTaker> adding;
    TimedStep sum;
    std::vector<at::Tensor> losses;
    for (std::int64_t first = 0; first < options_.batch; first += samples) {
      const models::Batch batch = parts == 1 ? batch_ : data::samples_of(batch_, first, samples);
      const auto pass = std::make_shared<Pass>(options_.seed, step, checks, adding,
                                               /*backward_passes=*/1, BatchPart{first, samples});
      const Moment begin(device);
      at::Tensor loss = model_.loss(batch, {.pass = pass});
      if (parts > 1) loss = loss.mul(rows(batch) / rows(batch_));
      const Moment middle(device);
      loss.backward();
      const bool last = first + samples == options_.batch;
      if (last) {
        for (auto& parameter : model_.parameters()) parameter.mutable_grad().reset();
      } else if (!adding) {
        adding = std::make_shared<AddedGradients>(model_);
      }
      const Moment end(device);
      sum.forward_ms += middle.ms_since(begin);
      sum.backward_ms += end.ms_since(middle);
      losses.push_back(loss.detach());
    }
    checks->run();
    for (const at::Tensor& loss : losses) sum.loss += loss.item<double>();
    return sum;
  }

  double rows(const models::Batch& batch) const {
    return static_cast<double>(model_.row_targets(batch).size(0));
  }

  const NetworkRestored restored_;
  models::Model& model_;
  const MeasureOptions& options_;
  const models::Batch batch_;
  std::vector<Entry> entries_;
  std::uint64_t steps_ = 0;
};

}  // namespace

double MeasureRow::median_ms() const { return quantile(step_ms, 0.5); }

double MeasureRow::best_ms() const { return quantile(step_ms, 0.0); }

std::vector<MeasureRow> measure(models::Model& model, const MeasureOptions& options) {
  model.train();
  Contest contest(model, options);
  for (const Mode mode : options.modes) contest.enter({mode}, model.plan_of(mode));
  for (const BudgetedPlan& planned : options.plans) {
    contest.enter({Mode::automatic, planned.budget}, planned.step, planned.parts);
  }
  for (int round = 1; round <= options.rounds; ++round) contest.take_turns(round);
  contest.trace();
  return contest.rows();
}

}  // namespace pareprop
