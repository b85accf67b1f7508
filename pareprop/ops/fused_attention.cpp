#include "pareprop/ops/fused_attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorOptions.h>

#include <optional>

#include "pareprop/ops/mac_counter.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

enum FusedKept { kOutput, kLogSums, kSeed, kOffset, kCountQ, kCountK, kKept };

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// What is added to the scores, (batch, heads, queries, keys) in the type of q, or undefined. Only
// what differs between samples, heads and queries has memory.
Tensor score_bias(FusedKernel kernel, const variable_list& in) {
  Tensor sum;
  if (in[kBias].defined()) sum = in[kBias].unsqueeze(0);
  if (in[kMask].defined()) {
    const Tensor mask = in[kMask].unsqueeze(1);
    sum = sum.defined() ? sum.add(mask) : mask;
  }
  if (!sum.defined()) return sum;
  const Tensor& q = in[kQ];
  const std::int64_t batch = q.size(0), keys = in[kK].size(2), groups = sum.size(0);
  sum = sum.to(q.scalar_type());
  if (groups > 1 && groups < batch) sum = sum.repeat({batch / groups, 1, 1, 1});
  constexpr std::int64_t kAligned = 16;  // what the kernel loads at a time
  if (kernel == FusedKernel::efficient && keys % kAligned != 0) {
    sum = at::constant_pad_nd(sum, {0, round_up(keys, kAligned) - keys}).narrow(-1, 0, keys);
  }
  return sum.expand({batch, q.size(1), q.size(2), keys});
}

std::optional<Tensor> optional(const Tensor& t) {
  return t.defined() ? std::optional<Tensor>(t) : std::nullopt;
}

FusedKernel chosen_by_torch(const variable_list& in) {
  const c10::AutoGradMode as_if_recorded(true);
  const auto differentiable = [](const Tensor& t) { return t.detach().requires_grad_(true); };
  const Tensor bias = score_bias(FusedKernel::efficient, in);
  const std::int64_t choice = at::_fused_sdp_choice(
      differentiable(in[kQ]), differentiable(in[kK]), differentiable(in[kV]),
      optional(in[kBias].defined() ? differentiable(bias) : bias), 0.0, false, score_scale(in[kQ]));
  switch (static_cast<at::SDPBackend>(choice)) {
    case at::SDPBackend::flash_attention:
      return FusedKernel::flash;
    case at::SDPBackend::efficient_attention:
      return FusedKernel::efficient;
    case at::SDPBackend::cudnn_attention:  // it has no gradient of a bias
      return in[kBias].defined() ? FusedKernel::efficient : FusedKernel::cudnn;
    default:
      return FusedKernel::none;
  }
}

bool has_overrideable(const Tensor& q) {
  static const auto op = c10::Dispatcher::singleton().findSchema(
      {"aten::_scaled_dot_product_fused_attention_overrideable", ""});
  const auto key = c10::computeDispatchKey(q.scalar_type(), q.layout(), q.device());
  return op && op->hasKernelForDispatchKey(key);
}

// By heads, with the heads of a row beside each other.
Tensor empty_by_heads(const Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options())
      .transpose(1, 2);
}

Tensor empty_floats(at::IntArrayRef sizes, const Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

variable_list meta_forward(FusedKernel kernel, const Tensor& q, const Tensor& k,
                           bool for_backward) {
  variable_list kept(kKept);
  kept[kOutput] = empty_by_heads(q);
  add_meta_macs(2.0 * scores_macs(q, k));
  const std::int64_t queries = kernel == FusedKernel::flash ? q.size(2) : round_up(q.size(2), 32);
  if (for_backward) kept[kLogSums] = empty_floats({q.size(0), q.size(1), queries}, q);
  kept[kSeed] = at::empty({}, q.options().dtype(at::kLong));
  kept[kOffset] = at::empty({}, q.options().dtype(at::kLong));
  return kept;
}

variable_list meta_backward(FusedKernel kernel, const variable_list& in, const Tensor& bias) {
  const Tensor &q = in[kQ], &k = in[kK];
  const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), head = q.size(3);
  variable_list made{empty_by_heads(q), empty_by_heads(k), empty_by_heads(in[kV])};
  add_meta_macs(5.0 * scores_macs(q, k));
  if (kernel == FusedKernel::flash) {  // sums of dq, and of each row
    const std::int64_t rows = round_up(queries, 128);
    const Tensor sums = empty_floats({batch, heads, rows, round_up(head, 32)}, q);
    const Tensor of_rows = empty_floats({batch, heads, rows}, q);
  } else {
    const Tensor of_rows = empty_floats({batch, heads, queries}, q);
  }
  if (bias.defined()) {
    made.push_back(at::empty({batch, heads, queries, round_up(k.size(2), 16)}, q.options())
                       .narrow(-1, 0, k.size(2)));
  }
  made.resize(4);
  return made;
}

}  // namespace

FusedKernel fused_kernel_for(const variable_list& in) {
  const Tensor &q = in[kQ], &k = in[kK];
  const std::int64_t head = q.size(3);
  const bool fits = q.scalar_type() != at::kDouble && head % 8 == 0 && head == in[kV].size(3) &&
                    q.numel() > 0 && k.numel() > 0 && !in[kRows].defined();
  if (!fits) return FusedKernel::none;
  const bool added = in[kBias].defined() || in[kMask].defined();
  if (q.is_meta()) {
    if (head > 256) return FusedKernel::none;
    const bool half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
    return half && !added ? FusedKernel::flash : FusedKernel::efficient;
  }
  if (q.is_cpu()) return in[kBias].defined() ? FusedKernel::none : FusedKernel::cpu;
  if (q.is_cuda()) return chosen_by_torch(in);
  return has_overrideable(q) ? FusedKernel::overrideable : FusedKernel::none;
}

AttentionMade fused_attention(FusedKernel kernel, const variable_list& in, bool for_backward) {
  const Tensor &q = in[kQ], &k = in[kK], &v = in[kV];
  const double scale = score_scale(q);
  variable_list kept(kKept);
  if (q.is_meta()) {
    const Tensor bias = score_bias(kernel, in);
    kept = meta_forward(kernel, q, k, for_backward);
  } else if (kernel == FusedKernel::efficient) {
    std::tie(kept[kOutput], kept[kLogSums], kept[kSeed], kept[kOffset]) =
        at::_scaled_dot_product_efficient_attention(q, k, v, optional(score_bias(kernel, in)),
                                                    for_backward, 0.0, false, scale);
  } else if (kernel == FusedKernel::cpu) {
    std::tie(kept[kOutput], kept[kLogSums]) = at::_scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, false, optional(score_bias(kernel, in)), scale);
  } else {
    const auto take = [&](auto made) {
      auto& [output, log_sums, count_q, count_k, max_q, max_k, seed, offset, debug] = made;
      kept = {output, log_sums, seed, offset, count_q, count_k};
    };
    if (kernel == FusedKernel::flash) {
      take(at::_scaled_dot_product_flash_attention(q, k, v, 0.0, false, false, scale));
    } else if (kernel == FusedKernel::cudnn) {
      take(at::_scaled_dot_product_cudnn_attention(q, k, v, optional(score_bias(kernel, in)),
                                                   for_backward, 0.0, false, false, scale));
    } else {
      take(at::_scaled_dot_product_fused_attention_overrideable(
          q, k, v, optional(score_bias(kernel, in)), 0.0, false, false, scale));
    }
  }
  AttentionMade made{merge_heads(kept[kOutput])};
  if (for_backward) made.kept = std::move(kept);
  return made;
}

variable_list fused_attention_backward(FusedKernel kernel, const variable_list& in,
                                       const variable_list& kept, const Tensor& doutput,
                                       bool bias_wanted) {
  const Tensor &q = in[kQ], &k = in[kK], &v = in[kV];
  const Tensor &output = kept[kOutput], &log_sums = kept[kLogSums];
  const Tensor bias = score_bias(kernel, in);
  const double scale = score_scale(q);
  const std::int64_t queries = q.size(2), keys = k.size(2);
  const std::array<bool, 4> wanted{true, true, true, bias_wanted};
  variable_list made(4);
  if (q.is_meta()) {
    made = meta_backward(kernel, in, bias_wanted ? bias : Tensor());
  } else if (kernel == FusedKernel::flash) {
    std::tie(made[kQ], made[kK], made[kV]) = at::_scaled_dot_product_flash_attention_backward(
        doutput, q, k, v, output, log_sums, kept[kCountQ], kept[kCountK], queries, keys, 0.0, false,
        kept[kSeed], kept[kOffset], scale);
  } else if (kernel == FusedKernel::cudnn) {
    std::tie(made[kQ], made[kK], made[kV]) = at::_scaled_dot_product_cudnn_attention_backward(
        doutput, q, k, v, output, log_sums, kept[kSeed], kept[kOffset], bias, kept[kCountQ],
        kept[kCountK], queries, keys, 0.0, false, scale);
  } else if (kernel == FusedKernel::cpu) {
    std::tie(made[kQ], made[kK], made[kV]) =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(doutput, q, k, v, output, log_sums,
                                                                 0.0, false, optional(bias), scale);
  } else if (kernel == FusedKernel::efficient) {
    std::tie(made[kQ], made[kK], made[kV], made[kBias]) =
        at::_scaled_dot_product_efficient_attention_backward(doutput, q, k, v, bias, output,
                                                             log_sums, kept[kSeed], kept[kOffset],
                                                             0.0, wanted, false, scale);
  } else {
    std::tie(made[kQ], made[kK], made[kV], made[kBias]) =
        at::_scaled_dot_product_fused_attention_overrideable_backward(
            doutput, q, k, v, bias, wanted, output, log_sums, kept[kCountQ], kept[kCountK], queries,
            keys, 0.0, false, kept[kSeed], kept[kOffset], scale);
  }
  if (bias_wanted) made[kBias] = made[kBias].sum(0, false, in[kBias].scalar_type());
  return made;
}

}  // namespace pareprop
