#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pareprop {

// What attention adds to its scores, and dropout of its probabilities. Undefined: nothing.
struct AttentionTerms {
  at::Tensor bias = {};  // (heads, queries, keys); receives a gradient
  // (groups, 1 or queries, keys): sample b uses group b % groups. Receives none.
  at::Tensor mask = {};
  // Keys that lie on a map: the one at (i, j) adds position_rows[.., i] + position_columns[.., j].
  at::Tensor position_rows = {};     // (batch, heads, queries, rows of the map); gets a gradient
  at::Tensor position_columns = {};  // (batch, heads, queries, columns of it); gets a gradient
  double dropout = 0.0;              // drawn from the thread's RandomScope
};

// softmax(q k^T / sqrt(head) + terms) v over each head of each sample.
//
// One autograd node. On CPUs it works head by head in the cache: without a graph it keeps nothing.
// With one it keeps the probabilities for its backward pass, or on a lean tape computes them again
// there. Where there are too many of them (keeps_probabilities) it works tile by tile of the scores
// and keeps its output and one number for each query: memory is linear in the tokens. bf16 has its
// scores in float32 (Note [Products of pairs]). On other devices it is one of torch's fused kernels
// (ops/device_attention.h), which keeps no probabilities.

// qkv (batch, tokens, 3 * heads * head), q, k and v one after the other -> (batch, tokens, heads *
// head).
at::Tensor self_attention(const at::Tensor& qkv, std::int64_t heads,
                          const AttentionTerms& terms = {});

// q (batch, heads, queries, head), k and v (batch, heads, keys, head) -> (batch, queries, heads *
// head).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionTerms& terms = {});

// A composition that torch differentiates: what the node is compared with.
at::Tensor composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionTerms& terms = {});

// Whether probabilities are kept for the backward pass: while they are at most some times as large
// as the queries. Depends on nothing else, so the forward pass and every recomputation agree.
bool keeps_probabilities(std::int64_t keys, std::int64_t head);

}  // namespace pareprop
