#include "pareprop/train/evaluate.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "pareprop/data/prefetch.h"
#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/train/batch_feed.h"

namespace pareprop::train {

at::Tensor right_rows(const at::Tensor& scores, const at::Tensor& targets) {
  const at::Tensor right = targets.dim() == 2 ? targets.argmax(-1) : targets;
  return scores.argmax(-1).eq(right).sum();
}

namespace {

// They agree after every batch: one that stopped alone would leave the others waiting for it.
bool any_of(distributed::ProcessGroup& group, bool here) {
  const at::Tensor count = at::tensor({here ? std::int64_t{1} : std::int64_t{0}}, at::kLong);
  group.all_reduce(count)->wait();
  return *count.const_data_ptr<std::int64_t>() > 0;
}

}  // namespace

Evaluation evaluate(models::Model& model, std::shared_ptr<const data::Batches> data,
                    distributed::ProcessGroup& group, const EvaluateOptions& options) {
  c10::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const std::int64_t all = data->per_epoch();
  data::Prefetcher batches(
      std::move(data),
      {.workers = options.workers, .ahead = data::batches_ahead(options.workers), .end = all});
  BatchFeed feed(batches, model, options.samples);
  double loss = 0.0, right = 0.0;
  std::int64_t rows = 0;
  bool given_up = false;
  // An accelerator has the next part to compute when the host waits for the numbers of one.
  std::shared_ptr<DeferredChecks> issued;
  const auto finish_issued = [&] {
    if (const auto checks = std::exchange(issued, nullptr)) checks->run();
  };
  for (std::int64_t i = 0; i < all; ++i) {
    for (bool last = false; !last;) {
      const BatchFeed::Part part = feed.next();
      last = part.last;
      if (part.batch.input.size(0) == 0) continue;
      const auto checks = std::make_shared<DeferredChecks>();
      const at::Tensor scores = model.forward(
          part.batch, {.pass = std::make_shared<Pass>(0, static_cast<std::uint64_t>(i), checks)});
      const at::Tensor targets = model.row_targets(part.batch);
      const std::int64_t count = scores.size(0);
      if (count > 0) {
        checks->add({at::cross_entropy_loss(scores, targets), right_rows(scores, targets)},
                    [&, count](c10::ArrayRef<double> values) {
                      loss += values[0] * static_cast<double>(count);
                      right += values[1];
                      return true;
                    });
        rows += count;
      }
      feed.copy_ahead();
      finish_issued();
      issued = checks;
    }
    if (options.on_batch && any_of(group, options.on_batch(i + 1, all))) {
      given_up = i + 1 < all;
      break;
    }
  }
  finish_issued();
  model.train(was_training);
  const at::Tensor sums = at::tensor({loss, right, static_cast<double>(rows)}, at::kDouble);
  group.all_reduce(sums)->wait();
  const double* sum = sums.const_data_ptr<double>();
  // Nothing that could be read says nothing: it must not pass for a perfect loss.
  const double count = sum[2] > 0 ? sum[2] : std::numeric_limits<double>::quiet_NaN();
  return {.loss = sum[0] / count,
          .accuracy = sum[1] / count,
          .rows = static_cast<std::int64_t>(sum[2]),
          .whole = !given_up};
}

}  // namespace pareprop::train
