#include "pareprop/ops/device_attention.h"

#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "pareprop/ops/precision.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

at::ScalarType score_type(const Tensor& q) {
  return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor probabilities(const variable_list& in) {
  const Tensor& q = in[kQ];
  Tensor scores = at::matmul(q, in[kK].transpose(-1, -2)).to(score_type(q)).mul_(score_scale(q));
  if (in[kBias].defined()) scores.add_(in[kBias]);
  if (in[kMask].defined()) {
    const std::int64_t groups = in[kMask].size(0);
    scores.unflatten(0, {scores.size(0) / groups, groups}).add_(in[kMask].unsqueeze(1));
  }
  if (in[kRows].defined()) {
    scores.unflatten(-1, {in[kRows].size(3), in[kColumns].size(3)})
        .add_(in[kRows].unsqueeze(-1))
        .add_(in[kColumns].unsqueeze(-2));
  }
  return at::softmax(scores, -1);
}

Tensor composed(const variable_list& in, const std::optional<MaskDraw>& dropout) {
  Tensor p = probabilities(in);
  if (dropout) p.mul_(dropout->mask(p.sizes(), p.options()));
  return merge_heads(at::matmul(p.to(in[kV].scalar_type()), in[kV]));
}

variable_list composed_backward(const variable_list& in, const std::optional<MaskDraw>& dropout,
                                const Tensor& doutput, bool bias_wanted) {
  const Tensor &q = in[kQ], &k = in[kK], &v = in[kV];
  const Tensor p = probabilities(in);
  const Tensor mask = dropout ? dropout->mask(p.sizes(), p.options()) : Tensor();
  variable_list made(kAttentionInputs);
  made[kV] = at::matmul((dropout ? p.mul(mask) : p).to(v.scalar_type()).transpose(-1, -2), doutput);
  Tensor dp = at::matmul(doutput, v.transpose(-1, -2)).to(p.scalar_type());
  if (dropout) dp.mul_(mask);
  Tensor dscores = at::_softmax_backward_data(dp, p, -1, p.scalar_type());
  if (bias_wanted) made[kBias] = dscores.sum(0);
  if (in[kRows].defined()) {
    const Tensor map = dscores.unflatten(-1, {in[kRows].size(3), in[kColumns].size(3)});
    made[kRows] = map.sum(-1);
    made[kColumns] = map.sum(-2);
  }
  dscores = dscores.mul_(score_scale(q)).to(q.scalar_type());
  made[kQ] = at::matmul(dscores, k);
  made[kK] = at::matmul(dscores.transpose(-1, -2), q);
  return made;
}

}  // namespace

FusedKernel device_kernel(const variable_list& in, const std::optional<MaskDraw>& dropout) {
  return dropout ? FusedKernel::none : fused_kernel_for(in);
}

AttentionMade device_attention(FusedKernel kernel, const variable_list& in,
                               const std::optional<MaskDraw>& dropout, bool for_backward) {
  const AutocastScope no_autocast(in[kQ].device().type(), {});
  if (kernel != FusedKernel::none) return fused_attention(kernel, in, for_backward);
  return {composed(in, dropout)};
}

variable_list device_attention_backward(FusedKernel kernel, const variable_list& in,
                                        const variable_list& kept,
                                        const std::optional<MaskDraw>& dropout,
                                        const Tensor& doutput, bool bias_wanted) {
  const AutocastScope no_autocast(in[kQ].device().type(), {});
  const Tensor by_heads = split_heads(doutput, in[kQ].size(1));
  if (kernel == FusedKernel::none) return composed_backward(in, dropout, by_heads, bias_wanted);
  variable_list made = fused_attention_backward(kernel, in, kept, by_heads, bias_wanted);
  made.resize(kAttentionInputs);
  return made;
}

}  // namespace pareprop
