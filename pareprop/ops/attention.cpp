#include "pareprop/ops/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "pareprop/ops/attention_inputs.h"
#include "pareprop/ops/device_attention.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/kernels/attention_kernel.h"
#include "pareprop/ops/kernels/gemm.h"
#include "pareprop/ops/kernels/long_attention.h"
#include "pareprop/ops/mac_counter.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/tape_scopes.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
const T* data(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

// REQUIRES: (batch, heads, rows, head) with the last dimension dense.
template <typename T>
HeadRows<const T> rows_of(const Tensor& t) {
  return {t.const_data_ptr<T>(), t.stride(0), t.stride(1), t.stride(2)};
}
template <typename T>
HeadRows<T> mutable_rows_of(const Tensor& t) {
  return {t.mutable_data_ptr<T>(), t.stride(0), t.stride(1), t.stride(2)};
}

// Calls run<T, S>() for the types that scores and values have (attention_kernel.h).
template <typename Run>
void with_types(const Tensor& values, const Run& run) {
  if (values.scalar_type() == at::kBFloat16) {
    run.template operator()<float, c10::BFloat16>();
  } else if (values.scalar_type() == at::kDouble) {
    run.template operator()<double, double>();
  } else {
    run.template operator()<float, float>();
  }
}

template <typename T, typename S>
AttentionProblem<T, S> problem(const variable_list& in, const std::optional<MaskDraw>& dropout) {
  AttentionProblem<T, S> a;
  a.batch = in[kQ].size(0);
  a.heads = in[kQ].size(1);
  a.queries = in[kQ].size(2);
  a.keys = in[kK].size(2);
  a.head = in[kQ].size(3);
  a.scale = static_cast<T>(1.0 / std::sqrt(static_cast<double>(a.head)));
  a.q = rows_of<S>(in[kQ]);
  a.k = rows_of<S>(in[kK]);
  a.v = rows_of<S>(in[kV]);
  a.bias = data<T>(in[kBias]);
  a.mask = data<T>(in[kMask]);
  if (in[kMask].defined()) {
    a.groups = in[kMask].size(0);
    a.mask_rows = in[kMask].size(1);
  }
  a.position_rows = data<T>(in[kRows]);
  a.position_columns = data<T>(in[kColumns]);
  if (in[kRows].defined()) {
    a.map_rows = in[kRows].size(3);
    a.map_columns = in[kColumns].size(3);
  }
  a.dropout = dropout;
  return a;
}

bool is_long(const variable_list& in) {
  return !keeps_probabilities(in[kK].size(2), in[kQ].size(3));
}

at::TensorOptions score_options(const Tensor& values) {
  return values.options().dtype(values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

// Of a long problem the logarithms of the sums of each query's exponentials and the output are
// kept, else the probabilities, unless they are to be computed again.
AttentionMade run_kernels(const variable_list& in, const std::optional<MaskDraw>& dropout,
                          bool for_backward) {
  const Tensor& q = in[kQ];
  AttentionMade made;
  made.output = at::empty({q.size(0), q.size(2), q.size(1) * q.size(3)}, q.options());
  Tensor kept;
  with_types(q, [&]<typename T, typename S>() {
    const bool by_tiles = is_long(in);
    if (for_backward && by_tiles) {
      kept = at::empty({q.size(0), q.size(1), q.size(2)}, score_options(q));
    } else if (for_backward && !tape_is_lean()) {
      const std::int64_t stride = probability_stride<T, S>(in[kK].size(2));
      kept = at::empty({q.size(0), q.size(1), q.size(2), stride}, q.options());
    }
    if (q.is_meta()) return;
    const HeadRows<S> output = mutable_rows_of<S>(split_heads(made.output, q.size(1)));
    if (by_tiles) {
      long_attention_forward(problem<T, S>(in, dropout), output,
                             kept.defined() ? kept.mutable_data_ptr<T>() : nullptr);
    } else {
      attention_forward(problem<T, S>(in, dropout), output,
                        kept.defined() ? kept.mutable_data_ptr<S>() : nullptr);
    }
  });
  if (q.is_meta()) {
    add_meta_macs(2.0 * scores_macs(in[kQ], in[kK]));
  }
  if (for_backward) made.kept = {kept, is_long(in) ? made.output : Tensor()};
  return made;
}

// Gradients of q, k and v, which are written to the given tensors, and of the terms.
variable_list run_kernels_backward(const variable_list& in, const std::optional<MaskDraw>& dropout,
                                   const variable_list& kept, const Tensor& doutput,
                                   variable_list gradients, bool bias_wanted) {
  const std::int64_t heads = in[kQ].size(1), keys = in[kK].size(2);
  const bool by_tiles = is_long(in);
  if (bias_wanted) gradients[kBias] = at::zeros_like(in[kBias]);
  if (in[kRows].defined()) {
    gradients[kRows] = at::zeros_like(in[kRows]);
    gradients[kColumns] = at::zeros_like(in[kColumns]);
  }
  const Tensor dense = doutput.contiguous();
  Tensor sums;
  if (by_tiles) {
    sums = at::empty({std::min(in[kQ].size(0) * heads, kHeadsAtOnce), 2, keys, in[kQ].size(3)},
                     score_options(in[kQ]));
  }
  if (in[kQ].is_meta()) {
    if (by_tiles || !kept[0].defined()) add_meta_macs(scores_macs(in[kQ], in[kK]));
    return gradients;
  }
  auto pointer = [&]<typename T>(AttentionInput which, T*) {
    return gradients[which].defined() ? gradients[which].template mutable_data_ptr<T>() : nullptr;
  };
  with_types(in[kQ], [&]<typename T, typename S>() {
    T* type = nullptr;
    const AttentionGradients<T, S> made{mutable_rows_of<S>(gradients[kQ]),
                                        mutable_rows_of<S>(gradients[kK]),
                                        mutable_rows_of<S>(gradients[kV]),
                                        pointer(kBias, type),
                                        pointer(kRows, type),
                                        pointer(kColumns, type)};
    const auto by_heads = [&](const Tensor& t) { return rows_of<S>(split_heads(t, heads)); };
    if (by_tiles) {
      long_attention_backward<T, S>(problem<T, S>(in, dropout), by_heads(kept[1]), data<T>(kept[0]),
                                    by_heads(dense), made, sums.mutable_data_ptr<T>());
    } else {
      attention_backward<T, S>(problem<T, S>(in, dropout), data<S>(kept[0]), by_heads(dense), made);
    }
  });
  return gradients;
}

// In the type of the scores of `values`.
variable_list optional_inputs(const AttentionTerms& terms, const Tensor& values) {
  const bool narrow = values.scalar_type() == at::kBFloat16;
  const auto type = narrow ? at::kFloat : values.scalar_type();
  auto dense = [&](const Tensor& t) { return t.defined() ? t.to(type).contiguous() : t; };
  return {dense(terms.bias), dense(terms.mask), dense(terms.position_rows),
          dense(terms.position_columns)};
}

// q, k and v of qkv, without a copy.
variable_list heads_of(const Tensor& qkv, std::int64_t heads) {
  const std::int64_t width = qkv.size(2) / 3;
  variable_list parts;
  for (std::int64_t i = 0; i < 3; ++i) {
    parts.push_back(split_heads(qkv.narrow(2, i * width, width), heads));
  }
  return parts;
}

void remember(AutogradContext* ctx, const std::optional<MaskDraw>& dropout) {
  ctx->saved_data["dropout"] = dropout.has_value();
  if (!dropout) return;
  ctx->saved_data["key"] = static_cast<std::int64_t>(dropout->key);
  ctx->saved_data["draw"] = static_cast<std::int64_t>(dropout->draw);
  ctx->saved_data["drop"] = dropout->drop;
  ctx->saved_data["first"] = dropout->part.first;
  ctx->saved_data["samples"] = dropout->part.samples;
}

std::optional<MaskDraw> remembered(AutogradContext* ctx) {
  if (!ctx->saved_data["dropout"].toBool()) return std::nullopt;
  return MaskDraw{static_cast<std::uint64_t>(ctx->saved_data["key"].toInt()),
                  static_cast<std::uint64_t>(ctx->saved_data["draw"].toInt()),
                  ctx->saved_data["drop"].toDouble(),
                  {ctx->saved_data["first"].toInt(), ctx->saved_data["samples"].toInt()}};
}

// Inputs of either node: the sources (qkv; or q, k, v where `heads` is 0), then the terms.
variable_list unpacked(const variable_list& inputs, std::int64_t heads) {
  if (heads == 0) return inputs;
  variable_list in = heads_of(inputs[0], heads);
  in.insert(in.end(), inputs.begin() + 1, inputs.end());
  return in;
}

// Autograd takes only tensors that are there: which ones are is kept in the bits of `present`.
variable_list spread(at::TensorList given, std::int64_t present) {
  variable_list all;
  for (std::size_t next = 0; next < given.size(); present >>= 1) {
    all.push_back((present & 1) != 0 ? given[next++] : Tensor());
  }
  return all;
}

// How a node computes: by our kernels, or on the device path by one of torch's.
constexpr std::int64_t kOurKernels = -1;

AttentionMade run_forward(std::int64_t way, const variable_list& in,
                          const std::optional<MaskDraw>& dropout, bool for_backward) {
  if (way != kOurKernels) {
    return device_attention(static_cast<FusedKernel>(way), in, dropout, for_backward);
  }
  return run_kernels(in, dropout, for_backward);
}

// Gradients of q, k and v, (batch, heads, rows, head) each, into that of qkv: in one operator.
void pack_heads(const variable_list& gradients, const Tensor& dqkv) {
  variable_list rows;
  for (const auto i : {kQ, kK, kV}) rows.push_back(gradients[i].transpose(1, 2).unsqueeze(2));
  Tensor packed = dqkv.unflatten(-1, {3, rows[0].size(3), rows[0].size(4)});
  at::cat_out(packed, rows, 2);
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static Tensor forward(AutogradContext* ctx, at::TensorList given, std::int64_t present,
                        std::int64_t heads, std::int64_t way,
                        const std::optional<MaskDraw>& dropout) {
    variable_list in = unpacked(spread(given, present), heads);
    in.resize(kAttentionInputs);
    const AttentionMade made = run_forward(way, in, dropout, /*for_backward=*/true);
    variable_list saved = given.vec();
    saved.insert(saved.end(), made.kept.begin(), made.kept.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["given"] = static_cast<std::int64_t>(given.size());
    ctx->saved_data["present"] = present;
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["way"] = way;
    remember(ctx, dropout);
    return made.output;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list given = ctx->get_saved_variables();
    const std::ptrdiff_t count = ctx->saved_data["given"].toInt();
    const variable_list kept(given.begin() + count, given.end());
    given.resize(static_cast<std::size_t>(count));
    const std::int64_t heads = ctx->saved_data["heads"].toInt();
    const std::int64_t present = ctx->saved_data["present"].toInt();
    const std::size_t sources = heads == 0 ? 3 : 1;
    const bool over_sources =
        tape_is_consumed() &&
        std::all_of(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(sources),
                    only_saved_here);
    variable_list in = unpacked(spread(given, present), heads);
    in.resize(kAttentionInputs);

    const std::int64_t way = ctx->saved_data["way"].toInt();
    const bool bias_wanted = in[kBias].defined() && ctx->needs_input_grad(sources);
    variable_list result(sources), made;
    const auto make_result = [&] {
      for (std::size_t i = 0; i < sources; ++i) {
        result[i] = over_sources ? given[i].detach() : at::empty_like(given[i]);
      }
    };
    if (way == kOurKernels) {  // they write to views of the result as q, k and v
      make_result();
      made = unpacked(result, heads);
      made.resize(kAttentionInputs);
      made =
          run_kernels_backward(in, remembered(ctx), kept, grads[0], std::move(made), bias_wanted);
    } else {
      made = device_attention_backward(static_cast<FusedKernel>(way), in, kept, remembered(ctx),
                                       grads[0], bias_wanted);
      if (heads > 0) {
        make_result();
        pack_heads(made, result[0]);
      } else {
        result = {made[kQ], made[kK], made[kV]};
      }
    }
    for (std::size_t i = kBias; i < kAttentionInputs; ++i) {
      if (in[i].defined()) result.push_back(made[i]);
    }
    result.resize(given.size() + 4);
    return result;
  }
};

bool has_kernel(const Tensor& values, std::int64_t head) {
  const auto dtype = compute_dtype(values);
  if (dtype != values.scalar_type()) return false;
  if (dtype == at::kBFloat16) return has_pair_products() && head % 2 == 0;
  return dtype == at::kFloat || dtype == at::kDouble;
}

Tensor run(variable_list inputs, std::int64_t heads, const AttentionTerms& terms) {
  const variable_list others = optional_inputs(terms, inputs[0]);
  inputs.insert(inputs.end(), others.begin(), others.end());
  std::optional<MaskDraw> dropout;
  if (terms.dropout > 0.0) dropout = draw_dropout(terms.dropout);
  const bool recorded = records(inputs), kernels = runs_kernels(inputs[0]);
  std::int64_t way = kOurKernels;
  if (!recorded || !kernels) {
    const c10::AutoGradMode no_graph(false);
    const variable_list in = unpacked(inputs, heads);
    if (!kernels) way = static_cast<std::int64_t>(device_kernel(in, dropout));
    if (!recorded) return run_forward(way, in, dropout, /*for_backward=*/false).output;
  }
  variable_list given;
  std::int64_t present = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    given.push_back(inputs[i]);
    present |= std::int64_t{1} << i;
  }
  return AttentionFunction::apply(at::TensorList(given), present, heads, way, dropout);
}

bool is_bf16(const Tensor& values) {
  return values.scalar_type() == at::kBFloat16 && compute_dtype(values) == at::kBFloat16;
}

// Of bf16 without products of pairs: the kernels in float32. A composition would have all scores in
// memory, and bits that depend on the number of threads.
Tensor run_wide(const variable_list& sources, std::int64_t heads, AttentionTerms terms) {
  variable_list wide;
  for (const Tensor& t : sources) wide.push_back(t.to(at::kFloat).contiguous());
  for (Tensor* t : {&terms.bias, &terms.mask, &terms.position_rows, &terms.position_columns}) {
    if (t->defined()) *t = t->to(at::kFloat);
  }
  return run(std::move(wide), heads, terms).to(sources.front().scalar_type());
}

// The scores that positions on a map add, (batch, heads, queries, keys).
Tensor position_scores(const AttentionTerms& terms) {
  return terms.position_rows.unsqueeze(-1).add(terms.position_columns.unsqueeze(-2)).flatten(-2);
}

}  // namespace

bool keeps_probabilities(std::int64_t keys, std::int64_t head) { return keys <= 16 * head; }

Tensor composed_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionTerms& terms) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
  Tensor scores = at::matmul(q.mul(scale), k.transpose(-1, -2));
  if (terms.bias.defined()) scores = scores.add(terms.bias);
  if (terms.mask.defined()) {
    const std::int64_t groups = terms.mask.size(0), times = scores.size(0) / groups;
    if (times * groups == scores.size(0)) {
      scores = scores.unflatten(0, {times, groups}).add(terms.mask.unsqueeze(1)).flatten(0, 1);
    } else {
      const Tensor repeated = terms.mask.repeat({times + 1, 1, 1});
      scores = scores.add(repeated.narrow(0, 0, scores.size(0)).unsqueeze(1));
    }
  }
  if (terms.position_rows.defined()) scores = scores.add(position_scores(terms));
  const Tensor p = dropout(at::softmax(scores, -1), terms.dropout);
  return at::matmul(p.to(v.scalar_type()), v).transpose(1, 2).flatten(2);
}

Tensor self_attention(const Tensor& qkv, std::int64_t heads, const AttentionTerms& terms) {
  if (!runs_kernels(qkv)) return run({qkv.to(compute_dtype(qkv)).contiguous()}, heads, terms);
  if (has_kernel(qkv, qkv.size(2) / 3 / heads)) return run({qkv.contiguous()}, heads, terms);
  if (is_bf16(qkv)) return run_wide({qkv}, heads, terms);
  const variable_list parts = heads_of(qkv, heads);
  return composed_attention(parts[0], parts[1], parts[2], terms);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionTerms& terms) {
  if (!runs_kernels(q)) {
    const auto dtype = compute_dtype(q);
    return run({q.to(dtype), k.to(dtype), v.to(dtype)}, 0, terms);
  }
  if (has_kernel(q, q.size(3)))
    return run({q.contiguous(), k.contiguous(), v.contiguous()}, 0, terms);
  if (is_bf16(q)) return run_wide({q, k, v}, 0, terms);
  return composed_attention(q, k, v, terms);
}

}  // namespace pareprop
