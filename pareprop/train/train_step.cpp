#include "pareprop/train/train_step.h"

#include <ATen/ops/tensor.h>

#include <array>
#include <cmath>
#include <memory>

#include "pareprop/ops/random_stream.h"
#include "pareprop/train/evaluate.h"
#include "pareprop/train/gradient_norm.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {
namespace {

struct Sums {
  double loss = 0.0, right = 0.0, rows = 0.0, stop = 0.0;

  Sums over(distributed::ProcessGroup& group, TraceRecorder* recorder) const {
    const TraceScope scope(group.world() > 1 ? recorder : nullptr, StepKind::communication,
                           "sums of loss and rows");
    const at::Tensor all = at::tensor({loss, right, rows, stop}, at::kDouble);
    group.all_reduce(all)->wait();
    const double* sum = all.const_data_ptr<double>();
    return {sum[0], sum[1], sum[2], sum[3]};
  }
};

models::Batch next_batch(const StepParts& parts, data::Prefetcher& batches) {
  const TraceScope scope(parts.recorder, StepKind::data,
                         "batch " + std::to_string(batches.number()));
  return model_batch(batches.next(), parts.model);
}

// Adds the gradients of the sum over the rows, divided by `divisor`.
void run_micro_step(const StepParts& parts, const models::Batch& batch, std::shared_ptr<Pass> pass,
                    double divisor, Sums& sums) {
  at::Tensor scores, loss;
  double value = 0.0;
  {
    const TraceScope scope(parts.recorder, StepKind::forward, "forward");
    loss = parts.model.loss(batch, {.pass = std::move(pass)}, &scores);
    value = loss.item<double>();
  }
  const auto rows = static_cast<double>(scores.size(0));
  sums.loss += value * rows;
  sums.rows += rows;
  sums.right += static_cast<double>(count_right(scores, parts.model.row_targets(batch)));
  scores.reset();  // of text they are large, and the backward pass does not need them
  // Streams that are not finite cannot be recovered; what the step will be refused for is in the
  // sum, and other processes wait for this one's gradients, which count as zero.
  if (std::isfinite(value)) {
    const TraceScope scope(parts.recorder, StepKind::other_backward, "backward");
    if (rows == divisor) {
      loss.backward();
    } else {
      loss.mul(rows / divisor).backward();
    }
  }
}

}  // namespace

StepOutcome run_step(const StepParts& parts, const StepOptions& options, data::Prefetcher& batches,
                     double learning_rate, bool wants_stop) {
  for (const auto& [name, parameter] : parts.optimizer.parameters()) {
    parameter.mutable_grad().reset();
  }
  // How many rows there are in all is known at the end only (of text, as many as are masked), so
  // gradients are divided by the number of samples first, and corrected by a factor.
  const auto samples = static_cast<double>(options.batch * options.accumulate);
  const std::uint64_t seed =
      random_key({options.seed, static_cast<std::uint64_t>(parts.group.rank())});
  Sums own{.stop = wants_stop ? 1.0 : 0.0};
  parts.buckets.set_recorder(parts.recorder);
  for (std::int64_t micro = 0; micro < options.accumulate; ++micro) {
    const auto number = static_cast<std::uint64_t>(batches.number());
    const models::Batch batch = next_batch(parts, batches);
    if (micro + 1 == options.accumulate) parts.buckets.begin();
    run_micro_step(parts, batch, std::make_shared<Pass>(seed, number), samples, own);
  }
  parts.buckets.finish();

  const Sums all = own.over(parts.group, parts.recorder);
  const double factor = samples * parts.group.world() / all.rows;
  const TraceScope scope(parts.recorder, StepKind::optimizer, "norm and AdamW");
  const GradientNorm norm = gradient_norm(parts.optimizer.parameters());
  StepOutcome outcome{.loss = all.loss / all.rows,
                      .accuracy = all.right / all.rows,
                      .gradient_norm = norm.norm * factor,
                      .stop = all.stop > 0.0,
                      .not_finite = {}};
  if (!norm.first_not_finite.empty()) {
    outcome.not_finite = "the gradient of " + norm.first_not_finite;
  } else if (!std::isfinite(outcome.loss)) {
    const std::string bad = first_not_finite(parts.optimizer.parameters());
    outcome.not_finite =
        bad.empty() ? "the loss, computed with finite parameters," : "the parameter " + bad;
  }
  if (!outcome.not_finite.empty()) return outcome;
  parts.optimizer.step(learning_rate, factor * clip_factor(outcome.gradient_norm, options.clip));
  if (parts.average != nullptr) parts.average->update();
  return outcome;
}

}  // namespace pareprop::train
