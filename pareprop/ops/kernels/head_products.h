#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pareprop/ops/kernels/bf16_pairs.h"
#include "pareprop/ops/kernels/gemm.h"

namespace pareprop {

// A buffer that is kept from use to use, with room for `count` values.
template <typename T>
T* sized(std::vector<T>& buffer, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

// What one head of one sample multiplies. The gradients may be in the memory of what they are of,
// all three or none.
template <typename S>
struct HeadOperands {
  std::int64_t queries = 0, keys = 0, head = 0;
  double scale = 1;         // of the gradients of q and k
  Matrix<const S> q, k, v;  // (queries, head), (keys, head), (keys, head)
  Matrix<S> output;         // of the forward pass: (queries, head)
  Matrix<const S> doutput;  // of the backward pass
  Matrix<S> dq, dk, dv;     // as q, k, v
};

// The six products of attention, for `rows` queries from `first` on at a time; values are stored as
// S, scores in T. Rows of probabilities and their gradients are padded_keys() values apart, zero in
// what is padded. Keeps its memory from head to head.
template <typename T, typename S>
class HeadProducts;

template <typename T>
class HeadProducts<T, T> {
 public:
  static std::int64_t padded_keys(std::int64_t keys) { return keys; }

  void begin_forward(const HeadOperands<T>& operands) { o_ = operands; }

  // `scores_wanted`: scores() will be called.
  void begin_backward(const HeadOperands<T>& operands, bool scores_wanted) {
    static_cast<void>(scores_wanted);
    o_ = operands;
    if (o_.q.data != o_.dq.data) return;
    o_.q = copied(o_.q, o_.queries, q_);
    o_.k = copied(o_.k, o_.keys, k_);
    o_.v = copied(o_.v, o_.keys, v_);
  }

  // s (rows, keys) = q k^T
  void scores(std::int64_t first, std::int64_t rows, T* s) {
    gemm<T>(Transpose::no, Transpose::yes, rows, o_.keys, o_.head, T(1), from(o_.q, first), o_.k,
            T(0), {s, o_.keys});
  }
  // output = p v
  void mix(const T* p, std::int64_t first, std::int64_t rows) {
    gemm<T>(Transpose::no, Transpose::no, rows, o_.head, o_.keys, T(1), {p, o_.keys}, o_.v, T(0),
            from(o_.output, first));
  }
  // dv = p^T doutput, summed over the calls from first = 0 on
  void value_gradient(const T* p, std::int64_t first, std::int64_t rows) {
    gemm<T>(Transpose::yes, Transpose::no, o_.keys, o_.head, rows, T(1), {p, o_.keys},
            from(o_.doutput, first), first == 0 ? T(0) : T(1), o_.dv);
  }
  // dp (rows, keys) = doutput v^T
  void probability_gradient(std::int64_t first, std::int64_t rows, T* dp) {
    gemm<T>(Transpose::no, Transpose::yes, rows, o_.keys, o_.head, T(1), from(o_.doutput, first),
            o_.v, T(0), {dp, o_.keys});
  }
  // dk = scale * ds^T q, summed likewise; to be called before query_gradient() of these rows
  void key_gradient(const T* ds, std::int64_t first, std::int64_t rows) {
    gemm<T>(Transpose::yes, Transpose::no, o_.keys, o_.head, rows, static_cast<T>(o_.scale),
            {ds, o_.keys}, from(o_.q, first), first == 0 ? T(0) : T(1), o_.dk);
  }
  // dq = scale * ds k
  void query_gradient(const T* ds, std::int64_t first, std::int64_t rows) {
    gemm<T>(Transpose::no, Transpose::no, rows, o_.head, o_.keys, static_cast<T>(o_.scale),
            {ds, o_.keys}, o_.k, T(0), from(o_.dq, first));
  }
  void end_backward() {}

 private:
  template <typename U>
  static Matrix<U> from(const Matrix<U>& m, std::int64_t row) {
    return {m.data + row * m.stride, m.stride};
  }
  Matrix<const T> copied(const Matrix<const T>& m, std::int64_t rows, std::vector<T>& to) const {
    T* out = sized(to, rows * o_.head);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(m.data + i * m.stride, o_.head, out + i * o_.head);
    }
    return {out, o_.head};
  }

  HeadOperands<T> o_;
  std::vector<T> q_, k_, v_;
};

// By pairs. REQUIRES: has_pair_products() and an even head.
template <>
class HeadProducts<float, c10::BFloat16> {
 public:
  using S = c10::BFloat16;
  static std::int64_t padded_keys(std::int64_t keys) { return 2 * pairs_of(keys); }

  void begin_forward(const HeadOperands<S>& operands);
  void begin_backward(const HeadOperands<S>& operands, bool scores_wanted);
  void scores(std::int64_t first, std::int64_t rows, float* s);
  void mix(const S* p, std::int64_t first, std::int64_t rows);
  void value_gradient(const S* p, std::int64_t first, std::int64_t rows);
  void probability_gradient(std::int64_t first, std::int64_t rows, float* dp);
  void key_gradient(const S* ds, std::int64_t first, std::int64_t rows);
  void query_gradient(const S* ds, std::int64_t first, std::int64_t rows);
  void end_backward();

 private:
  // sum (keys, head) = left^T right, or more of it.
  void add_transposed(const S* left, const Matrix<const S>& right, std::int64_t first,
                      std::int64_t rows, std::vector<float>& sum);

  HeadOperands<S> o_;
  std::vector<Pair16> k_columns_, v_columns_, k_rows_, v_rows_, left_, right_;
  std::vector<float> rows_, dk_, dv_;
};

}  // namespace pareprop
