#include "pareprop/train/evaluate.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <limits>

#include "pareprop/data/prefetch.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

std::int64_t count_right(const at::Tensor& scores, const at::Tensor& targets) {
  const at::Tensor right = targets.dim() == 2 ? targets.argmax(-1) : targets;
  return scores.argmax(-1).eq(right).sum().item<std::int64_t>();
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
  double loss = 0.0;
  std::int64_t right = 0, rows = 0;
  bool given_up = false;
  for (std::int64_t i = 0; i < all; ++i) {
    const models::Batch batch = model_batch(batches.next(), model);
    if (batch.input.size(0) > 0) {
      const at::Tensor scores = model.forward(batch);
      const at::Tensor targets = model.row_targets(batch);
      const std::int64_t count = scores.size(0);
      if (count > 0) {
        loss += at::cross_entropy_loss(scores, targets).item<double>() * static_cast<double>(count);
        right += count_right(scores, targets);
        rows += count;
      }
    }
    if (options.on_batch && any_of(group, options.on_batch(i + 1, all))) {
      given_up = i + 1 < all;
      break;
    }
  }
  model.train(was_training);
  const at::Tensor sums =
      at::tensor({loss, static_cast<double>(right), static_cast<double>(rows)}, at::kDouble);
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
