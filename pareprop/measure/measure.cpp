#include "pareprop/measure/measure.h"

#include <algorithm>
#include <chrono>

#include "pareprop/memory/meter.h"
#include "pareprop/reversible/auto_tuner.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop {
namespace {

double run_step(models::Model& model, const models::Batch& batch, std::uint64_t seed,
                std::uint64_t step) {
  const at::Tensor loss = model.loss(batch, {.pass = std::make_shared<Pass>(seed, step)});
  loss.backward();
  const double value = loss.item<double>();
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  return value;
}

// Forward products, once more where they are recomputed, and two for each in the backward pass.
double products(Mode mode) { return mode == Mode::stored ? 3.0 : 4.0; }

}  // namespace

double MeasureRow::median_ms() const {
  if (step_ms.empty()) return 0.0;
  std::vector<double> sorted = step_ms;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double MeasureRow::best_ms() const {
  return step_ms.empty() ? 0.0 : *std::min_element(step_ms.begin(), step_ms.end());
}

std::vector<MeasureRow> measure(models::Model& model, const MeasureOptions& options) {
  model.train();
  const models::Batch batch = model.example(options.batch, options.seed);
  StackOptions stack{.precision = options.precision, .arithmetic = options.arithmetic};
  if (!model.stacks().empty()) stack.executor = make_executor(model.weight_options().device(), 2);
  auto begin_turn = [&](Mode mode, int round) {
    if (options.on_turn) options.on_turn(mode, round);
    stack.mode = mode;
    model.set_stack_options(stack);
  };
  std::vector<MeasureRow> rows;
  for (const Mode mode : options.modes) {
    begin_turn(mode, 0);
    memory::reset_peaks();
    MeasureRow row{.mode = mode};
    row.loss = run_step(model, batch, options.seed, 0);
    const memory::Usage usage = memory::usage();
    row.activation_peak_bytes = usage.activation_peak;
    row.peak_bytes = usage.total_peak;
    row.flops_per_step =
        2.0 * options.forward_macs * static_cast<double>(options.batch) * products(mode);
    rows.push_back(std::move(row));
  }
  std::uint64_t step = 1;
  for (int round = 1; round <= options.rounds; ++round) {
    for (MeasureRow& row : rows) {
      begin_turn(row.mode, round);
      // Decides anew after its options were set: that is not what is timed.
      const int trials = row.mode == Mode::automatic ? 2 * AutoTuner::kTrials + 1 : 0;
      for (int i = 0; i < trials; ++i) run_step(model, batch, options.seed, step++);
      for (int i = 0; i < options.steps; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        run_step(model, batch, options.seed, step++);
        const std::chrono::duration<double, std::milli> taken =
            std::chrono::steady_clock::now() - begin;
        row.step_ms.push_back(taken.count());
      }
    }
  }
  return rows;
}

}  // namespace pareprop
