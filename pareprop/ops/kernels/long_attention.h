#pragma once

#include "pareprop/ops/kernels/attention_kernel.h"

namespace pareprop {

// Attention for many keys: tile by tile of the scores, of which no row is ever whole. What a thread
// works with does not grow with the number of queries, and with that of keys as k and v do. The
// same bits whatever the number of threads.

// Writes `output`; and the logarithms of the sums of exponentials, (batch, heads, queries), unless
// `log_sums` is null.
template <typename T, typename S>
void long_attention_forward(const AttentionProblem<T, S>& problem, HeadRows<S> output, T* log_sums);

// Heads whose gradients of k and v are summed up at the same time.
constexpr std::int64_t kHeadsAtOnce = 4;

// `output` and `log_sums` as the forward pass wrote them. `sums`: room for (min(batch * heads,
// kHeadsAtOnce), 2, keys, head).
template <typename T, typename S>
void long_attention_backward(const AttentionProblem<T, S>& problem, HeadRows<const S> output,
                             const T* log_sums, HeadRows<const S> doutput,
                             const AttentionGradients<T, S>& gradients, T* sums);

}  // namespace pareprop
