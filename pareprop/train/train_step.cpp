#include "pareprop/train/train_step.h"

#include <ATen/ops/tensor.h>

#include <array>
#include <cmath>
#include <memory>

#include "pareprop/device/torch_error.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/added_gradients.h"
#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/train/evaluate.h"
#include "pareprop/train/gradient_norm.h"

namespace pareprop::train {
namespace {

struct Sums {
  double loss = 0.0, right = 0.0, rows = 0.0, stop = 0.0;
  double changed = 0.0;     // processes that changed weights in the backward pass
  bool can_go_back = true;  // as far as is known: the loss of the last micro-step is finite

  Sums over(distributed::ProcessGroup& group, TraceRecorder* recorder) const {
    const TraceScope scope(group.world() > 1 ? recorder : nullptr, StepKind::communication,
                           "sums of loss and rows");
    const at::Tensor all = at::tensor({loss, right, rows, stop, changed}, at::kDouble);
    group.all_reduce(all)->wait();
    const double* sum = all.const_data_ptr<double>();
    return {.loss = sum[0], .right = sum[1], .rows = sum[2], .stop = sum[3], .changed = sum[4]};
  }
};

BatchFeed::Part next_part(const StepParts& parts, BatchFeed& batches) {
  const TraceScope scope(parts.recorder, StepKind::data,
                         "batch " + std::to_string(batches.number()));
  return batches.next();
}

struct ForwardPass {
  at::Tensor loss;
  double rows = 0.0;
};

// Where reading a value waits, loss and right rows are added to `sums` when the checks of the pass
// run.
ForwardPass run_forward(const StepParts& parts, const data::Batch& batch,
                        const std::shared_ptr<Pass>& pass, Sums& sums) {
  DeferredChecks& checks = *pass->checks();
  at::Tensor scores, loss;
  {
    const TraceScope scope(parts.recorder, StepKind::forward, "forward");
    loss = parts.model.loss(batch, {.pass = pass}, &scores);
  }
  const auto rows = static_cast<double>(scores.size(0));
  // A part of a text in which nothing is masked. With updates inside, batches have no parts.
  if (rows == 0.0 && parts.inside == nullptr) return {};
  sums.rows += rows;
  // Streams that are not finite cannot be recovered, and the drift of such a pass means nothing.
  checks.add({loss.detach(), right_rows(scores, parts.model.row_targets(batch))},
             [&sums, rows](c10::ArrayRef<double> values) {
               sums.loss += values[0] * rows;
               sums.right += values[1];
               return sums.can_go_back = std::isfinite(values[0]);
             });
  scores.reset();  // of text they are large, and the backward pass does not need them
  if (!reads_wait(loss.device())) checks.run();
  return {std::move(loss), rows};
}

// Adds the gradients of the sum over the rows, divided by `divisor`.
void run_backward(const StepParts& parts, const ForwardPass& forward, double divisor,
                  bool again = false) {
  const TraceScope scope(parts.recorder, StepKind::other_backward, "backward");
  const at::Tensor loss =
      forward.rows == divisor ? forward.loss : forward.loss.mul(forward.rows / divisor);
  loss.backward(/*gradient=*/{}, /*retain_graph=*/again);
}

// Of the last micro-step buckets take the gradients by themselves, whether they are divided or not:
// so the sums have the same bits.
std::shared_ptr<GradientTaker> gradients_added(const StepParts& parts, bool last) {
  using Products = AddedGradients::Products;
  const bool sends = last && parts.shares.group().world() > 1;
  return std::make_shared<AddedGradients>(parts.model,
                                          sends ? Products::made_first : Products::added_to_sums);
}

// Of all parameters, from what this process has of its own: the same in all processes.
GradientNorm norm_in_all(const StepParts& parts, const std::vector<double>& own_squares) {
  return norm_of(parts.shares.all(), parts.shares.joined(own_squares));
}

// The one time that the host waits for the device in a step (Note [Reads after the step]): before
// the optimizer, so that a step that went wrong leaves the weights as they are. While it steps,
// the host issues the next step.
GradientNorm read_step(const StepParts& parts, DeferredChecks& checks) {
  const TraceScope scope(parts.recorder, StepKind::optimizer, "norms, and the end of the passes");
  const GradientNorms norms(parts.shares.own());
  std::vector<double> squares = norms.squares({});
  checks.add(norms.numbers(), [&](c10::ArrayRef<double> values) {
    squares = norms.squares(values);
    return true;
  });
  checks.run();
  return norm_in_all(parts, squares);
}

std::uint64_t dropout_seed(const StepParts& parts, const StepOptions& options) {
  return random_key({options.seed, static_cast<std::uint64_t>(parts.shares.group().rank())});
}

StepOutcome outcome_of(const StepParts& parts, const Sums& all, const GradientNorm& norm,
                       double factor) {
  StepOutcome outcome{.loss = all.loss / all.rows,
                      .accuracy = all.right / all.rows,
                      .gradient_norm = norm.norm * factor,
                      .stop = all.stop > 0.0,
                      .not_finite = {}};
  if (!norm.first_not_finite.empty()) {
    outcome.not_finite = "the gradient of " + norm.first_not_finite;
  } else if (!std::isfinite(outcome.loss)) {
    const std::string bad = first_not_finite(parts.shares.all());
    outcome.not_finite =
        bad.empty() ? "the loss, computed with finite parameters," : "the parameter " + bad;
  }
  return outcome;
}

bool reads_wait(const StepParts& parts) {
  const io::NamedTensors& trained = parts.shares.all();
  return !trained.empty() && pareprop::reads_wait(trained.front().second.device());
}

// The norm of the gradients that the last backward pass gave to `inside`; the one time that the
// host waits for the device.
GradientNorm read_inside(const StepParts& parts, DeferredChecks& checks) {
  std::vector<double> squares = parts.inside->squares({});
  checks.add(parts.inside->numbers(), [&](c10::ArrayRef<double> values) {
    squares = parts.inside->squares(values);
    return true;
  });
  checks.run();
  return norm_in_all(parts, squares);
}

// What fails while weights change has left some as they were before the step.
template <typename Change>
void change_weights(Change&& change) {
  try {
    change();
  } catch (const std::exception& error) {
    throw HalfTakenStep(fault_of(error), explained(error));
  }
}

// After the optimizer's.
void end_update(const StepParts& parts) {
  parts.shares.gather_weights(parts.recorder);
  if (parts.average != nullptr) parts.average->update();
}

StepOutcome run_step_inside(const StepParts& parts, const StepOptions& options, BatchFeed& batches,
                            double learning_rate, bool wants_stop) {
  InsideUpdates& inside = *parts.inside;
  const auto samples = static_cast<double>(options.batch);
  Sums own{.stop = wants_stop ? 1.0 : 0.0};
  const auto checks = std::make_shared<DeferredChecks>();
  const BatchFeed::Part fed = next_part(parts, batches);
  const ForwardPass forward = run_forward(
      parts, fed.batch,
      std::make_shared<Pass>(dropout_seed(parts, options), static_cast<std::uint64_t>(fed.number),
                             checks, inside.taker()),
      own);
  // All processes have to know how many rows there are, and whether one has a bad loss, before the
  // first weight changes.
  const Sums before = own.over(parts.shares.group(), parts.recorder);
  const double factor = samples * parts.shares.group().world() / before.rows;
  GradientNorm norm;
  double clip = 1.0;
  bool goes_back = std::isfinite(before.loss);
  if (goes_back && options.clip > 0.0) {
    inside.begin_measuring(parts.recorder);
    run_backward(parts, forward, samples, /*again=*/true);
    inside.finish();
    norm = read_inside(parts, *checks);
    clip = clip_factor(norm.norm * factor, options.clip);
    goes_back = own.can_go_back && norm.first_not_finite.empty();
  }
  // Where the host waits for values it has waited once, for those of the first backward pass: the
  // second has the same. Only what a recorded step took is not known yet, which concerns no other
  // process: one may be recorded and the others not.
  const bool knows_norm = options.clip > 0.0 && reads_wait(parts);
  if (goes_back) {
    inside.begin_stepping(learning_rate, factor * clip, parts.recorder);
    try {
      run_backward(parts, forward, samples);
      inside.finish();
      if (!knows_norm) {
        norm = read_inside(parts, *checks);
      } else if (parts.recorder != nullptr) {
        checks->run();
      }
    } catch (const std::exception& error) {
      if (!inside.changed_weights()) throw;
      throw HalfTakenStep(fault_of(error), explained(error));
    }
    own.changed = inside.changed_weights() ? 1.0 : 0.0;
  }
  batches.copy_ahead();
  const Sums all = own.over(parts.shares.group(), parts.recorder);
  StepOutcome outcome = outcome_of(parts, all, norm, factor);
  outcome.half_taken = all.changed > 0.0 && !outcome.not_finite.empty();
  if (outcome.not_finite.empty()) change_weights([&] { end_update(parts); });
  return outcome;
}

}  // namespace

StepOutcome run_step(const StepParts& parts, const StepOptions& options, BatchFeed& batches,
                     double learning_rate, bool wants_stop) {
  drop_gradients(parts.model);
  if (parts.inside != nullptr) {
    return run_step_inside(parts, options, batches, learning_rate, wants_stop);
  }
  // How many rows there are in all is known at the end only (of text, as many as are masked), so
  // gradients are divided by the number of samples first, and corrected by a factor.
  const auto samples = static_cast<double>(options.batch * options.accumulate);
  const std::uint64_t seed = dropout_seed(parts, options);
  Sums own{.stop = wants_stop ? 1.0 : 0.0};
  const auto checks = std::make_shared<DeferredChecks>();
  parts.buckets.set_recorder(parts.recorder);
  bool adds = false;  // to gradients of earlier micro-steps
  for (std::int64_t done = 0; done < options.accumulate; adds = true) {
    const BatchFeed::Part fed = next_part(parts, batches);
    if (fed.last) ++done;
    const bool last = done == options.accumulate;
    std::shared_ptr<GradientTaker> taker = last ? parts.buckets.begin() : nullptr;
    if (adds && taker == nullptr) taker = gradients_added(parts, last);
    const auto pass = std::make_shared<Pass>(seed, static_cast<std::uint64_t>(fed.number), checks,
                                             std::move(taker), /*backward_passes=*/1, fed.place);
    const ForwardPass forward = run_forward(parts, fed.batch, pass, own);
    // What the step will be refused for is in the sum, and other processes wait for this one's
    // gradients, which count as zero.
    if (own.can_go_back && forward.rows > 0.0) run_backward(parts, forward, samples);
    batches.copy_ahead();
  }
  parts.buckets.finish();

  const bool waits = reads_wait(parts);
  GradientNorm norm;
  if (waits) norm = read_step(parts, *checks);
  const Sums all = own.over(parts.shares.group(), parts.recorder);
  const double factor = samples * parts.shares.group().world() / all.rows;
  const TraceScope scope(parts.recorder, StepKind::optimizer, "norm and optimizer");
  if (!waits) norm = norm_in_all(parts, squared_norms(parts.shares.own()));
  const StepOutcome outcome = outcome_of(parts, all, norm, factor);
  if (!outcome.not_finite.empty()) return outcome;
  change_weights([&] {
    parts.optimizer.step(learning_rate, factor * clip_factor(outcome.gradient_norm, options.clip));
    end_update(parts);
  });
  return outcome;
}

}  // namespace pareprop::train
