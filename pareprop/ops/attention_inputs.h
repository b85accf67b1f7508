#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <cstdint>

// What the ways to compute attention share.
namespace pareprop {

// Of a list: q, k and v as (batch, heads, rows, head), then AttentionTerms, undefined where there
// is none.
enum AttentionInput { kQ, kK, kV, kBias, kMask, kRows, kColumns, kAttentionInputs };

// The output, (batch, queries, heads * head), and what the backward pass needs besides the inputs.
struct AttentionMade {
  at::Tensor output;
  torch::autograd::variable_list kept = {};
};

inline double score_scale(const at::Tensor& q) {
  return 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
}

// (batch, rows, heads * head) as (batch, heads, rows, head), and back.
inline at::Tensor split_heads(const at::Tensor& t, std::int64_t heads) {
  return t.unflatten(-1, {heads, t.size(-1) / heads}).transpose(1, 2);
}
inline at::Tensor merge_heads(const at::Tensor& t) { return t.transpose(1, 2).flatten(2); }

// Multiply-accumulates of the scores: as many as the product with v has.
inline double scores_macs(const at::Tensor& q, const at::Tensor& k) {
  return static_cast<double>(q.numel()) * static_cast<double>(k.size(2));
}

}  // namespace pareprop
