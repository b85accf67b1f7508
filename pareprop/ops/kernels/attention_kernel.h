#pragma once

#include <cstdint>
#include <optional>

#include "pareprop/ops/random_stream.h"

namespace pareprop {

// (batch, heads, rows, head) in memory, any order of the first three dimensions.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;  // strides

  T* at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return data + b * batch + h * head + i * row;
  }
};

// Attention of every head of every sample by itself, in the cache of the core that computes it:
// scores = scale * q k^T + bias + mask + positions, p = softmax(scores), output = dropout(p) v.
// Values are stored as S and scores computed in T: float and float, double and double, or float and
// bfloat16 (REQUIRES: has_pair_products() and an even head).
template <typename T, typename S = T>
struct AttentionProblem {
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, head = 0;
  T scale = 1;
  HeadRows<const S> q, k, v;
  // What is added to the scores; null: nothing.
  const T* bias = nullptr;  // (heads, queries, keys)
  const T* mask = nullptr;  // (groups, mask_rows, keys); sample b uses group b % groups
  std::int64_t groups = 1, mask_rows = 1;  // mask_rows: 1 or queries
  // The key at (i, j) of a map adds position_rows[query, i] + position_columns[query, j].
  const T* position_rows = nullptr;     // (batch, heads, queries, map_rows)
  const T* position_columns = nullptr;  // (batch, heads, queries, map_columns)
  std::int64_t map_rows = 0, map_columns = 0;
  std::optional<MaskDraw> dropout = std::nullopt;
};

// Values from one query's probabilities to the next one's: no fewer than keys.
template <typename T, typename S = T>
std::int64_t probability_stride(std::int64_t keys);

// Writes `output`; and the probabilities to p (batch, heads, queries, probability_stride) unless
// that is null, negative where dropped.
template <typename T, typename S>
void attention_forward(const AttentionProblem<T, S>& problem, HeadRows<S> output, S* p);

template <typename T, typename S = T>
struct AttentionGradients {
  HeadRows<S> q, k, v;  // written; all three may be the problem's own, or none
  // Added to, unless null.
  T* bias = nullptr;
  T* position_rows = nullptr;
  T* position_columns = nullptr;
};

// `p` as attention_forward wrote it, or null: computed again. The same bits whatever the number of
// threads.
template <typename T, typename S>
void attention_backward(const AttentionProblem<T, S>& problem, const S* p,
                        HeadRows<const S> doutput, const AttentionGradients<T, S>& gradients);

}  // namespace pareprop
