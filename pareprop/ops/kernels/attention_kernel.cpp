#include "pareprop/ops/kernels/attention_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "pareprop/ops/kernels/head_products.h"
#include "pareprop/ops/kernels/row_kernels.h"

namespace pareprop {
namespace {

// Scores of so many bytes stay in a core's cache while they are worked on.
constexpr std::int64_t kScoreBytes = 256 * 1024;

// Samples whose bias gradients are summed by one task. Fixed, so that the sums do not depend on the
// number of threads.
constexpr std::int64_t kBiasChunks = 16;

std::int64_t chunk_rows(std::int64_t queries, std::int64_t keys, std::size_t value_bytes) {
  const std::int64_t bytes = queries * keys * static_cast<std::int64_t>(value_bytes);
  const std::int64_t chunks = std::max<std::int64_t>(1, (bytes + kScoreBytes - 1) / kScoreBytes);
  return (queries + chunks - 1) / chunks;
}

// What one thread works with.
template <typename T, typename S>
struct Scratch {
  HeadProducts<T, S> products;
  std::vector<T> scores, row;
  std::vector<S> p, dropped, positive, gradient;
};

// One head of one sample.
template <typename T, typename S>
class Head {
 public:
  Head(const AttentionProblem<T, S>& problem, std::int64_t b, std::int64_t h,
       Scratch<T, S>& scratch)
      : a_(problem),
        b_(b),
        h_(h),
        stride_(HeadProducts<T, S>::padded_keys(problem.keys)),
        scratch_(scratch) {}

  void forward(const HeadRows<S>& output, S* kept_p) {
    HeadOperands<S> operands = inputs();
    operands.output = of_head(output);
    scratch_.products.begin_forward(operands);
    by_chunks([&](std::int64_t first, std::int64_t rows) {
      S* p = kept_p != nullptr ? kept_p + (first_query() + first) * stride_
                               : sized(scratch_.p, rows * stride_);
      probabilities(first, rows, p);
      if (a_.dropout) drop(first, rows, p);
      scratch_.products.mix(a_.dropout ? scratch_.dropped.data() : p, first, rows);
    });
  }

  void backward(const S* kept_p, const HeadRows<const S>& doutput,
                const AttentionGradients<T, S>& gradients, T* bias_gradient) {
    HeadOperands<S> operands = inputs();
    operands.doutput = of_head(doutput);
    operands.dq = of_head(gradients.q);
    operands.dk = of_head(gradients.k);
    operands.dv = of_head(gradients.v);
    HeadProducts<T, S>& products = scratch_.products;
    products.begin_backward(operands, kept_p == nullptr);
    by_chunks([&](std::int64_t first, std::int64_t rows) {
      const S* p = kept_p != nullptr ? kept_p + (first_query() + first) * stride_
                                     : probabilities_again(first, rows);
      const S* used = p;
      if (a_.dropout) {
        split(p, rows * stride_);
        p = scratch_.positive.data();
        used = scratch_.dropped.data();
      }
      products.value_gradient(used, first, rows);
      T* dp = sized(scratch_.scores, rows * a_.keys);
      products.probability_gradient(first, rows, dp);
      if (a_.dropout) drop_gradient(used, rows, dp);
      const S* ds = score_gradients(p, rows, dp);
      add_to_terms(first, rows, dp, gradients, bias_gradient);
      products.key_gradient(ds, first, rows);
      products.query_gradient(ds, first, rows);
    });
    products.end_backward();
  }

 private:
  HeadOperands<S> inputs() const {
    HeadOperands<S> o;
    o.queries = a_.queries;
    o.keys = a_.keys;
    o.head = a_.head;
    o.scale = static_cast<double>(a_.scale);
    o.q = of_head(a_.q);
    o.k = of_head(a_.k);
    o.v = of_head(a_.v);
    return o;
  }

  template <typename U>
  Matrix<U> of_head(const HeadRows<U>& rows) const {
    return {rows.at(b_, h_, 0), rows.row};
  }

  // Where the queries of this head begin in a (batch, heads, queries, ...) array.
  std::int64_t first_query() const { return (b_ * a_.heads + h_) * a_.queries; }

  template <typename Body>
  void by_chunks(const Body& body) const {
    const std::int64_t step = chunk_rows(a_.queries, a_.keys, sizeof(T));
    for (std::int64_t first = 0; first < a_.queries; first += step) {
      body(first, std::min(step, a_.queries - first));
    }
  }

  // p (rows, stride) = the probabilities of `rows` queries from `first` on.
  void probabilities(std::int64_t first, std::int64_t rows, S* p) {
    T* s = nullptr;
    if constexpr (std::is_same_v<T, S>) {
      s = p;
    } else {
      s = sized(scratch_.scores, rows * a_.keys);
    }
    scratch_.products.scores(first, rows, s);
    for (std::int64_t i = 0; i < rows; ++i) {
      S* row = p + i * stride_;
      row_kernels<T, S>().softmax(s + i * a_.keys, a_.scale, bias_row(first + i),
                                  mask_row(first + i), a_.keys, row);
      std::fill(row + a_.keys, row + stride_, S(0));
    }
  }

  const S* probabilities_again(std::int64_t first, std::int64_t rows) {
    S* p = sized(scratch_.p, rows * stride_);
    probabilities(first, rows, p);
    if (a_.dropout) drop(first, rows, p);
    return p;
  }

  const T* mask_row(std::int64_t query) const {
    if (a_.mask == nullptr) return nullptr;
    const std::int64_t row = a_.mask_rows == 1 ? 0 : query;
    return a_.mask + ((b_ % a_.groups) * a_.mask_rows + row) * a_.keys;
  }

  const T* bias_row(std::int64_t query) {
    const T* bias = a_.bias == nullptr ? nullptr : a_.bias + (h_ * a_.queries + query) * a_.keys;
    if (a_.position_rows == nullptr) return bias;
    const T* by_row = a_.position_rows + (first_query() + query) * a_.map_rows;
    const T* by_column = a_.position_columns + (first_query() + query) * a_.map_columns;
    T* sum = sized(scratch_.row, a_.keys);
    for (std::int64_t i = 0; i < a_.map_rows; ++i, sum += a_.map_columns) {
      for (std::int64_t j = 0; j < a_.map_columns; ++j) sum[j] = by_row[i] + by_column[j];
    }
    for (std::int64_t j = 0; bias != nullptr && j < a_.keys; ++j) {
      scratch_.row[static_cast<std::size_t>(j)] += bias[j];
    }
    return scratch_.row.data();
  }

  // Draws what is dropped: p becomes negative there, and scratch.dropped gets what values are
  // multiplied with.
  void drop(std::int64_t first, std::int64_t rows, S* p) {
    S* dropped = sized(scratch_.dropped, rows * stride_);
    T* factors = sized(scratch_.row, a_.keys);
    for (std::int64_t i = 0; i < rows; ++i, p += stride_, dropped += stride_) {
      a_.dropout->fill((first_query() + first + i) * a_.keys, a_.keys, factors);
      for (std::int64_t j = 0; j < a_.keys; ++j) {
        const T probability = static_cast<T>(p[j]);
        dropped[j] = static_cast<S>(factors[j] * probability);
        if (factors[j] == T(0)) p[j] = static_cast<S>(-probability);
      }
      std::fill(dropped + a_.keys, dropped + stride_, S(0));
    }
  }

  // The probabilities themselves, and what they become by dropout.
  void split(const S* signed_p, std::int64_t count) {
    S* positive = sized(scratch_.positive, count);
    S* dropped = sized(scratch_.dropped, count);
    const T scale = static_cast<T>(a_.dropout->scale());
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = static_cast<T>(signed_p[i]);
      positive[i] = static_cast<S>(std::abs(value));
      dropped[i] = static_cast<S>(std::signbit(value) ? T(0) : value * scale);
    }
  }

  void drop_gradient(const S* used, std::int64_t rows, T* dp) const {
    const T scale = static_cast<T>(a_.dropout->scale());
    for (std::int64_t i = 0; i < rows; ++i, used += stride_, dp += a_.keys) {
      for (std::int64_t j = 0; j < a_.keys; ++j) {
        dp[j] = static_cast<T>(used[j]) == T(0) ? T(0) : dp[j] * scale;
      }
    }
  }

  // From those of the probabilities, in place, and as products take them.
  const S* score_gradients(const S* p, std::int64_t rows, T* dp) {
    S* ds = nullptr;
    if constexpr (std::is_same_v<T, S>) {
      ds = dp;
    } else {
      ds = sized(scratch_.gradient, rows * stride_);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      S* row = ds + i * stride_;
      row_kernels<T, S>().softmax_backward(p + i * stride_, dp + i * a_.keys, a_.keys, row);
      std::fill(row + a_.keys, row + stride_, S(0));
    }
    return ds;
  }

  // Adds the gradients of the scores, `ds` (rows, keys), to those of what was added to the scores.
  void add_to_terms(std::int64_t first, std::int64_t rows, const T* ds,
                    const AttentionGradients<T, S>& gradients, T* bias) const {
    if (bias != nullptr) {
      T* sum = bias + (h_ * a_.queries + first) * a_.keys;
      for (std::int64_t i = 0; i < rows * a_.keys; ++i) sum[i] += ds[i];
    }
    if (gradients.position_rows == nullptr) return;
    for (std::int64_t q = first; q < first + rows; ++q) {
      T* by_row = gradients.position_rows + (first_query() + q) * a_.map_rows;
      T* by_column = gradients.position_columns + (first_query() + q) * a_.map_columns;
      for (std::int64_t i = 0; i < a_.map_rows; ++i, ds += a_.map_columns) {
        T sum = 0;
        for (std::int64_t j = 0; j < a_.map_columns; ++j) {
          sum += ds[j];
          by_column[j] += ds[j];
        }
        by_row[i] += sum;
      }
    }
  }

  const AttentionProblem<T, S>& a_;
  std::int64_t b_, h_, stride_;
  Scratch<T, S>& scratch_;
};

template <typename T, typename S>
void end_products() {
  if constexpr (!std::is_same_v<T, S>) end_pair_products();
}

}  // namespace

template <typename T, typename S>
std::int64_t probability_stride(std::int64_t keys) {
  return HeadProducts<T, S>::padded_keys(keys);
}

template <typename T, typename S>
void attention_forward(const AttentionProblem<T, S>& a, HeadRows<S> output, S* p) {
  at::parallel_for(0, a.batch * a.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch<T, S> scratch;
    for (std::int64_t task = begin; task < end; ++task) {
      Head<T, S>(a, task / a.heads, task % a.heads, scratch).forward(output, p);
    }
    end_products<T, S>();
  });
}

template <typename T, typename S>
void attention_backward(const AttentionProblem<T, S>& a, const S* p, HeadRows<const S> doutput,
                        const AttentionGradients<T, S>& gradients) {
  const bool sums_bias = gradients.bias != nullptr;
  const std::int64_t chunks = sums_bias ? std::min(a.batch, kBiasChunks) : a.batch;
  const std::int64_t bias_size = a.heads * a.queries * a.keys;
  std::vector<T> partial(static_cast<std::size_t>(sums_bias ? chunks * bias_size : 0), T(0));
  at::parallel_for(0, chunks * a.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch<T, S> scratch;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t chunk = task / a.heads, h = task % a.heads;
      T* bias = sums_bias ? partial.data() + chunk * bias_size : nullptr;
      for (std::int64_t b = chunk * a.batch / chunks; b < (chunk + 1) * a.batch / chunks; ++b) {
        Head<T, S>(a, b, h, scratch).backward(p, doutput, gradients, bias);
      }
    }
    end_products<T, S>();
  });
  if (sums_bias) row_kernels<T, T>().add_rows(partial.data(), chunks, bias_size, gradients.bias);
}

#define PAREPROP_ATTENTION(T, S)                                                               \
  template std::int64_t probability_stride<T, S>(std::int64_t);                                \
  template void attention_forward(const AttentionProblem<T, S>&, HeadRows<S>, S*);             \
  template void attention_backward(const AttentionProblem<T, S>&, const S*, HeadRows<const S>, \
                                   const AttentionGradients<T, S>&);
PAREPROP_ATTENTION(float, float)
PAREPROP_ATTENTION(double, double)
PAREPROP_ATTENTION(float, c10::BFloat16)
#undef PAREPROP_ATTENTION

}  // namespace pareprop
