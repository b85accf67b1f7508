#include "pareprop/ops/cross_entropy.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <stdexcept>

#include "pareprop/ops/describe.h"
#include "pareprop/ops/recording.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Scores of text, a row for each word that is guessed and a column for each that there is, are
// larger than the tape of a block: their logarithms are there for some rows at a time only.
constexpr std::int64_t kScoresAtATime = 1 << 20;

// Whether they say what each class should get, and not one class a row.
bool are_shares(const Tensor& targets) { return targets.dim() == 2; }

void check(const Tensor& scores, const Tensor& targets) {
  const bool rows_agree =
      scores.dim() == 2 && targets.dim() >= 1 && targets.size(0) == scores.size(0);
  if (rows_agree && are_shares(targets) && targets.sizes() == scores.sizes()) return;
  if (rows_agree && targets.dim() == 1 && targets.scalar_type() == at::kLong) return;
  throw std::invalid_argument(
      "cross entropy: expected scores (rows, classes) and targets Long (rows) or (rows, classes), "
      "got " +
      describe(scores) + " and " + describe(targets));
}

Tensor run_cross_entropy(const Tensor& scores, const Tensor& targets) {
  const std::int64_t rows = scores.size(0);
  const std::int64_t some =
      std::max<std::int64_t>(1, kScoresAtATime / std::max<std::int64_t>(1, scores.size(1)));
  Tensor sum = at::zeros({}, scores.options());
  for (std::int64_t first = 0; first < rows; first += some) {
    const std::int64_t count = std::min(some, rows - first);
    const Tensor logs = at::log_softmax(scores.narrow(0, first, count), 1);
    const Tensor wanted = targets.narrow(0, first, count);
    sum.sub_(are_shares(wanted) ? logs.mul(wanted).sum(1).sum()
                                : logs.gather(1, wanted.unsqueeze(1)).sum());
  }
  return sum.div_(static_cast<double>(rows));
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& scores, const Tensor& targets) {
    ctx->save_for_backward({scores, targets});
    return run_cross_entropy(scores, targets);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &scores = saved[0], &targets = saved[1];
    Tensor dscores = at::empty_like(scores);
    at::_softmax_out(dscores, scores, 1, false);
    if (are_shares(targets)) {
      dscores.mul_(targets.sum(1, true)).sub_(targets);
    } else {
      const Tensor at_targets = targets.unsqueeze(1);
      dscores.scatter_(1, at_targets, dscores.gather(1, at_targets).sub_(1));
    }
    dscores.mul_(grads[0].div(static_cast<double>(scores.size(0))));
    return {dscores, {}};
  }
};

}  // namespace

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& targets) {
  check(scores, targets);
  if (!records({scores})) return run_cross_entropy(scores, targets);
  return CrossEntropyFunction::apply(scores, targets);
}

}  // namespace pareprop
