#include "pareprop/ops/kernels/attention_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "pareprop/ops/kernels/one_head.h"
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
  ScratchBuffer<T> scores, row;
  ScratchBuffer<S> p, dropped, positive, gradient;
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
        terms_(problem, b, h),
        scratch_(scratch) {}

  void forward(const HeadRows<S>& output, S* kept_p) {
    HeadOperands<S> operands = head_operands(a_, b_, h_);
    operands.output = head_rows(output, b_, h_);
    scratch_.products.begin_forward(operands, a_.keys);
    by_chunks([&](const Tile& t) {
      S* p = kept_p != nullptr ? kept_p + (terms_.first_query() + t.query) * stride_
                               : sized(scratch_.p, t.queries * stride_);
      probabilities(t, p);
      if (a_.dropout) drop(t, p);
      scratch_.products.mix(a_.dropout ? scratch_.dropped.data() : p, t);
    });
  }

  void backward(const S* kept_p, const HeadRows<const S>& doutput,
                const AttentionGradients<T, S>& gradients, T* bias_gradient) {
    HeadOperands<S> operands = head_operands(a_, b_, h_);
    operands.doutput = head_rows(doutput, b_, h_);
    operands.dq = head_rows(gradients.q, b_, h_);
    operands.dk = head_rows(gradients.k, b_, h_);
    operands.dv = head_rows(gradients.v, b_, h_);
    HeadProducts<T, S>& products = scratch_.products;
    products.begin_backward(operands, a_.keys, kept_p == nullptr);
    by_chunks([&](const Tile& t) {
      const S* p = kept_p != nullptr ? kept_p + (terms_.first_query() + t.query) * stride_
                                     : probabilities_again(t);
      const S* used = p;
      if (a_.dropout) {
        split(p, t.queries * stride_);
        p = scratch_.positive.data();
        used = scratch_.dropped.data();
      }
      products.value_gradient(used, t);
      T* dp = sized(scratch_.scores, t.queries * a_.keys);
      products.probability_gradient(t, dp);
      if (a_.dropout) drop_gradient(used, t.queries, dp);
      const S* ds = score_gradients(p, t.queries, dp);
      terms_.add_gradients(t, dp, gradients, bias_gradient);
      products.key_gradient(ds, t);
      products.query_gradient(ds, t);
    });
    products.end_backward();
  }

 private:
  template <typename Body>
  void by_chunks(const Body& body) const {
    const std::int64_t step = chunk_rows(a_.queries, a_.keys, sizeof(T));
    for (std::int64_t first = 0; first < a_.queries; first += step) {
      body(Tile{first, std::min(step, a_.queries - first), 0, a_.keys});
    }
  }

  // p (queries, stride) = the probabilities of a tile.
  void probabilities(const Tile& t, S* p) {
    T* s = nullptr;
    if constexpr (std::is_same_v<T, S>) {
      s = p;
    } else {
      s = sized(scratch_.scores, t.queries * a_.keys);
    }
    scratch_.products.scores(t, s);
    for (std::int64_t i = 0; i < t.queries; ++i) {
      S* row = p + i * stride_;
      row_kernels<T, S>().softmax(s + i * a_.keys, a_.scale, terms_.bias_row(t, i, scratch_.row),
                                  terms_.mask_row(t, i), a_.keys, row);
      std::fill(row + a_.keys, row + stride_, S(0));
    }
  }

  const S* probabilities_again(const Tile& t) {
    S* p = sized(scratch_.p, t.queries * stride_);
    probabilities(t, p);
    if (a_.dropout) drop(t, p);
    return p;
  }

  // Draws what is dropped: p becomes negative there, and scratch.dropped gets what values are
  // multiplied with.
  void drop(const Tile& t, S* p) {
    S* dropped = sized(scratch_.dropped, t.queries * stride_);
    T* factors = sized(scratch_.row, a_.keys);
    for (std::int64_t i = 0; i < t.queries; ++i, p += stride_, dropped += stride_) {
      terms_.draw_row(t, i, factors);
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

  const AttentionProblem<T, S>& a_;
  std::int64_t b_, h_, stride_;
  ScoreTerms<T, S> terms_;
  Scratch<T, S>& scratch_;
};

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
