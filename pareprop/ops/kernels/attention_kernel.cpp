#include "pareprop/ops/kernels/attention_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "pareprop/ops/kernels/gemm.h"
#include "pareprop/ops/kernels/row_kernels.h"

namespace pareprop {
namespace {

// Scores of so many bytes stay in a core's cache while they are worked on.
constexpr std::int64_t kScoreBytes = 256 * 1024;

// Samples whose bias gradients are summed by one task. Fixed, so that the sums do not depend on the
// number of threads.
constexpr std::int64_t kBiasChunks = 16;

// One head of one sample.
template <typename T>
class Head {
 public:
  Head(const AttentionProblem<T>& problem, std::int64_t b, std::int64_t h)
      : a_(problem), b_(b), h_(h) {}

  // s (rows, keys) = the probabilities of `rows` queries from `first` on.
  void probabilities(std::int64_t first, std::int64_t rows, T* s, std::vector<T>& scratch) const {
    gemm<T>(Transpose::no, Transpose::yes, rows, a_.keys, a_.head, a_.scale, at(a_.q, first),
            at(a_.k, 0), T(0), {s, a_.keys});
    for (std::int64_t i = 0; i < rows; ++i) {
      row_kernels<T, T>().softmax(s + i * a_.keys, bias_row(first + i, scratch),
                                  mask_row(first + i), a_.keys);
    }
  }

  template <typename U>
  Matrix<U> at(const HeadRows<U>& rows, std::int64_t first) const {
    return {rows.at(b_, h_, first), rows.row};
  }

  // Where the queries of this head begin in a (batch, heads, queries, ...) array.
  std::int64_t first_query() const { return (b_ * a_.heads + h_) * a_.queries; }

 private:
  const T* mask_row(std::int64_t query) const {
    if (a_.mask == nullptr) return nullptr;
    const std::int64_t row = a_.mask_rows == 1 ? 0 : query;
    return a_.mask + ((b_ % a_.groups) * a_.mask_rows + row) * a_.keys;
  }

  const T* bias_row(std::int64_t query, std::vector<T>& scratch) const {
    const T* bias = a_.bias == nullptr ? nullptr : a_.bias + (h_ * a_.queries + query) * a_.keys;
    if (a_.position_rows == nullptr) return bias;
    scratch.resize(static_cast<std::size_t>(a_.keys));
    const T* by_row = a_.position_rows + (first_query() + query) * a_.map_rows;
    const T* by_column = a_.position_columns + (first_query() + query) * a_.map_columns;
    T* sum = scratch.data();
    for (std::int64_t i = 0; i < a_.map_rows; ++i, sum += a_.map_columns) {
      for (std::int64_t j = 0; j < a_.map_columns; ++j) sum[j] = by_row[i] + by_column[j];
    }
    for (std::int64_t j = 0; bias != nullptr && j < a_.keys; ++j) {
      scratch[static_cast<std::size_t>(j)] += bias[j];
    }
    return scratch.data();
  }

  const AttentionProblem<T>& a_;
  std::int64_t b_, h_;
};

std::int64_t chunk_rows(std::int64_t queries, std::int64_t keys, std::size_t value_bytes) {
  const std::int64_t bytes = queries * keys * static_cast<std::int64_t>(value_bytes);
  const std::int64_t chunks = std::max<std::int64_t>(1, (bytes + kScoreBytes - 1) / kScoreBytes);
  return (queries + chunks - 1) / chunks;
}

// Draws what is dropped of p (count, from element `first` of the draw on): p becomes negative
// there, and `kept` gets what the values are multiplied with.
template <typename T>
void drop(const MaskDraw& draw, std::int64_t first, std::int64_t count, T* p,
          std::vector<T>& kept) {
  kept.resize(static_cast<std::size_t>(count));
  draw.fill(first, count, kept.data());
  for (std::int64_t i = 0; i < count; ++i) {
    T& value = kept[static_cast<std::size_t>(i)];
    const T probability = p[i];
    p[i] = value == T(0) ? -probability : probability;
    value *= probability;
  }
}

// The probabilities themselves and what they become by dropout, from values that are negative where
// dropped.
template <typename T>
void split(const T* signed_p, std::int64_t count, T scale, std::vector<T>& p,
           std::vector<T>& dropped) {
  p.resize(static_cast<std::size_t>(count));
  dropped.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = signed_p[i];
    p[static_cast<std::size_t>(i)] = std::abs(value);
    dropped[static_cast<std::size_t>(i)] = std::signbit(value) ? T(0) : value * scale;
  }
}

template <typename T>
struct Scratch {
  std::vector<T> scores, gradient, row, dropped, positive, q, k, v;
};

template <typename T>
T* sized(std::vector<T>& buffer, std::int64_t count) {
  buffer.resize(static_cast<std::size_t>(count));
  return buffer.data();
}

template <typename T>
void forward_head(const AttentionProblem<T>& a, std::int64_t b, std::int64_t h,
                  const HeadRows<T>& output, T* p, Scratch<T>& scratch) {
  const Head<T> head(a, b, h);
  const std::int64_t step = chunk_rows(a.queries, a.keys, sizeof(T));
  for (std::int64_t first = 0; first < a.queries; first += step) {
    const std::int64_t rows = std::min(step, a.queries - first), count = rows * a.keys;
    const std::int64_t element = (head.first_query() + first) * a.keys;
    T* s = p != nullptr ? p + element : sized(scratch.scores, count);
    head.probabilities(first, rows, s, scratch.row);
    const T* used = s;
    if (a.dropout) {
      drop(*a.dropout, element, count, s, scratch.dropped);
      used = scratch.dropped.data();
    }
    gemm<T>(Transpose::no, Transpose::no, rows, a.head, a.keys, T(1), {used, a.keys},
            head.at(a.v, 0), T(0), head.at(output, first));
  }
}

// Adds the gradients of the scores, `ds` (rows, keys), to those of what was added to the scores.
template <typename T>
void add_to_terms(const AttentionProblem<T>& a, std::int64_t first_query, std::int64_t h,
                  std::int64_t first, std::int64_t rows, const T* ds,
                  const AttentionGradients<T>& gradients, T* bias) {
  if (bias != nullptr) {
    T* sum = bias + (h * a.queries + first) * a.keys;
    for (std::int64_t i = 0; i < rows * a.keys; ++i) sum[i] += ds[i];
  }
  if (gradients.position_rows == nullptr) return;
  for (std::int64_t q = first; q < first + rows; ++q) {
    T* by_row = gradients.position_rows + (first_query + q) * a.map_rows;
    T* by_column = gradients.position_columns + (first_query + q) * a.map_columns;
    for (std::int64_t i = 0; i < a.map_rows; ++i, ds += a.map_columns) {
      T sum = 0;
      for (std::int64_t j = 0; j < a.map_columns; ++j) {
        sum += ds[j];
        by_column[j] += ds[j];
      }
      by_row[i] += sum;
    }
  }
}

// One head's rows, for whatever sample and head it is asked.
template <typename T>
HeadRows<const T> copied(const HeadRows<const T>& from, std::int64_t b, std::int64_t h,
                         std::int64_t rows, std::int64_t width, std::vector<T>& to) {
  T* out = sized(to, rows * width);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(from.at(b, h, i), width, out + i * width);
  return {.data = out, .batch = 0, .head = 0, .row = width};
}

template <typename T>
void backward_head(AttentionProblem<T> a, std::int64_t b, std::int64_t h, const T* kept_p,
                   const HeadRows<const T>& doutput, const AttentionGradients<T>& gradients,
                   T* bias_gradient, Scratch<T>& scratch) {
  if (a.q.data == gradients.q.data) {
    a.q = copied(a.q, b, h, a.queries, a.head, scratch.q);
    a.k = copied(a.k, b, h, a.keys, a.head, scratch.k);
    a.v = copied(a.v, b, h, a.keys, a.head, scratch.v);
  }
  const Head<T> head(a, b, h);
  const auto& kernels = row_kernels<T, T>();
  const std::int64_t step = chunk_rows(a.queries, a.keys, sizeof(T));
  for (std::int64_t first = 0; first < a.queries; first += step) {
    const std::int64_t rows = std::min(step, a.queries - first), count = rows * a.keys;
    const std::int64_t element = (head.first_query() + first) * a.keys;
    const T* p = nullptr;
    if (kept_p != nullptr) {
      p = kept_p + element;
    } else {
      T* again = sized(scratch.scores, count);
      head.probabilities(first, rows, again, scratch.row);
      if (a.dropout) drop(*a.dropout, element, count, again, scratch.dropped);
      p = again;
    }
    const T* used = p;
    if (a.dropout) {
      split(p, count, static_cast<T>(a.dropout->scale()), scratch.positive, scratch.dropped);
      p = scratch.positive.data();
      used = scratch.dropped.data();
    }
    const T more = first == 0 ? T(0) : T(1);
    gemm<T>(Transpose::yes, Transpose::no, a.keys, a.head, rows, T(1), {used, a.keys},
            head.at(doutput, first), more, head.at(gradients.v, 0));

    T* ds = sized(scratch.gradient, count);
    gemm<T>(Transpose::no, Transpose::yes, rows, a.keys, a.head, T(1), head.at(doutput, first),
            head.at(a.v, 0), T(0), {ds, a.keys});
    if (a.dropout) {
      const T scale = static_cast<T>(a.dropout->scale());
      for (std::int64_t i = 0; i < count; ++i) ds[i] = used[i] == T(0) ? T(0) : ds[i] * scale;
    }
    for (std::int64_t i = 0; i < count; i += a.keys) {
      kernels.softmax_backward(p + i, ds + i, a.keys);
    }
    add_to_terms<T>(a, head.first_query(), h, first, rows, ds, gradients, bias_gradient);
    gemm<T>(Transpose::no, Transpose::no, rows, a.head, a.keys, a.scale, {ds, a.keys},
            head.at(a.k, 0), T(0), head.at(gradients.q, first));
    gemm<T>(Transpose::yes, Transpose::no, a.keys, a.head, rows, a.scale, {ds, a.keys},
            head.at(a.q, first), more, head.at(gradients.k, 0));
  }
}

}  // namespace

template <typename T>
void attention_forward(const AttentionProblem<T>& a, HeadRows<T> output, T* p) {
  at::parallel_for(0, a.batch * a.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch<T> scratch;
    for (std::int64_t task = begin; task < end; ++task) {
      forward_head(a, task / a.heads, task % a.heads, output, p, scratch);
    }
  });
}

template <typename T>
void attention_backward(const AttentionProblem<T>& a, const T* p, HeadRows<const T> doutput,
                        const AttentionGradients<T>& gradients) {
  const bool sums_bias = gradients.bias != nullptr;
  const std::int64_t chunks = sums_bias ? std::min(a.batch, kBiasChunks) : a.batch;
  const std::int64_t bias_size = a.heads * a.queries * a.keys;
  std::vector<T> partial(static_cast<std::size_t>(sums_bias ? chunks * bias_size : 0), T(0));
  at::parallel_for(0, chunks * a.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch<T> scratch;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t chunk = task / a.heads, h = task % a.heads;
      T* bias = sums_bias ? partial.data() + chunk * bias_size : nullptr;
      for (std::int64_t b = chunk * a.batch / chunks; b < (chunk + 1) * a.batch / chunks; ++b) {
        backward_head(a, b, h, p, doutput, gradients, bias, scratch);
      }
    }
  });
  if (sums_bias) row_kernels<T, T>().add_rows(partial.data(), chunks, bias_size, gradients.bias);
}

template void attention_forward(const AttentionProblem<float>&, HeadRows<float>, float*);
template void attention_forward(const AttentionProblem<double>&, HeadRows<double>, double*);
template void attention_backward(const AttentionProblem<float>&, const float*,
                                 HeadRows<const float>, const AttentionGradients<float>&);
template void attention_backward(const AttentionProblem<double>&, const double*,
                                 HeadRows<const double>, const AttentionGradients<double>&);

}  // namespace pareprop
