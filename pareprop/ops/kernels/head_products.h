#pragma once

#include <algorithm>
#include <cstdint>

#include "pareprop/ops/kernels/bf16_pairs.h"
#include "pareprop/ops/kernels/gemm.h"
#include "pareprop/ops/kernels/scratch_buffer.h"

namespace pareprop {

// What one head of one sample multiplies. The gradients may be in the memory of what they are of,
// all three or none.
template <typename S>
struct HeadOperands {
  std::int64_t queries = 0, keys = 0, head = 0;
  double scale = 1;         // of the gradients of q and k
  Matrix<const S> q, k, v;  // (queries, head), (keys, head), (keys, head)
  Matrix<S> output;         // of mix(): (queries, head)
  Matrix<const S> doutput;  // of the backward pass
  Matrix<S> dq, dk, dv;     // of value_gradient() and so on: as q, k, v
};

// A part of the scores of one head: `queries` rows from `query` on, `keys` columns from `key` on.
struct Tile {
  std::int64_t query = 0, queries = 0, key = 0, keys = 0;
};

template <typename U>
Matrix<U> rows_from(const Matrix<U>& m, std::int64_t row) {
  return {m.data + row * m.stride, m.stride};
}

// The products of attention, one tile of the scores at a time; values are stored as S, scores in T.
// A head is cut into blocks of `key_block` keys (even, or all keys), the last one smaller. Rows of
// probabilities and their gradients are padded_keys() of the tile's keys apart, zero in what is
// padded. Keeps its memory from head to head.
//
// sum_*() add to the caller's sums in T, unscaled, beginning anew with the first block of what they
// sum over. The others write to the operands; they are for tiles that have all keys, and for them
// a backward pass begins with query 0 and ends with end_backward().
template <typename T, typename S>
class HeadProducts;

template <typename T>
class HeadProducts<T, T> {
 public:
  static std::int64_t padded_keys(std::int64_t keys) { return keys; }

  void begin_forward(const HeadOperands<T>& operands, std::int64_t key_block) {
    static_cast<void>(key_block);
    o_ = operands;
  }

  // `scores_wanted`: scores() will be called.
  void begin_backward(const HeadOperands<T>& operands, std::int64_t key_block, bool scores_wanted) {
    static_cast<void>(key_block);
    static_cast<void>(scores_wanted);
    o_ = operands;
    if (o_.q.data != o_.dq.data) return;
    o_.q = copied(o_.q, o_.queries, q_);
    o_.k = copied(o_.k, o_.keys, k_);
    o_.v = copied(o_.v, o_.keys, v_);
  }

  // s (queries, keys) = q k^T
  void scores(const Tile& t, T* s) { by_keys(o_.q, o_.k, t, s); }
  // dp (queries, keys) = doutput v^T
  void probability_gradient(const Tile& t, T* dp) { by_keys(o_.doutput, o_.v, t, dp); }

  // sum (queries, head) = p v
  void sum_mix(const T* p, const Tile& t, const Matrix<T>& sum) { over_keys(p, o_.v, t, 1, sum); }
  // sum (queries, head) = ds k
  void sum_query_gradient(const T* ds, const Tile& t, const Matrix<T>& sum) {
    over_keys(ds, o_.k, t, 1, sum);
  }
  // sum (keys, head) = p^T doutput
  void sum_value_gradient(const T* p, const Tile& t, const Matrix<T>& sum) {
    over_queries(p, o_.doutput, t, 1, sum);
  }
  // sum (keys, head) = ds^T q
  void sum_key_gradient(const T* ds, const Tile& t, const Matrix<T>& sum) {
    over_queries(ds, o_.q, t, 1, sum);
  }

  // output = p v
  void mix(const T* p, const Tile& t) { over_keys(p, o_.v, t, 1, rows_from(o_.output, t.query)); }
  // dv = p^T doutput
  void value_gradient(const T* p, const Tile& t) { over_queries(p, o_.doutput, t, 1, o_.dv); }
  // dk = scale * ds^T q; to be called before query_gradient() of this tile
  void key_gradient(const T* ds, const Tile& t) { over_queries(ds, o_.q, t, o_.scale, o_.dk); }
  // dq = scale * ds k
  void query_gradient(const T* ds, const Tile& t) {
    over_keys(ds, o_.k, t, o_.scale, rows_from(o_.dq, t.query));
  }
  void end_backward() {}

 private:
  void by_keys(const Matrix<const T>& left, const Matrix<const T>& right, const Tile& t, T* made) {
    gemm<T>(Transpose::no, Transpose::yes, t.queries, t.keys, o_.head, T(1),
            rows_from(left, t.query), rows_from(right, t.key), T(0), {made, t.keys});
  }
  void over_keys(const T* left, const Matrix<const T>& right, const Tile& t, double scale,
                 const Matrix<T>& sum) {
    gemm<T>(Transpose::no, Transpose::no, t.queries, o_.head, t.keys, static_cast<T>(scale),
            {left, t.keys}, rows_from(right, t.key), t.key == 0 ? T(0) : T(1), sum);
  }
  void over_queries(const T* left, const Matrix<const T>& right, const Tile& t, double scale,
                    const Matrix<T>& sum) {
    gemm<T>(Transpose::yes, Transpose::no, t.keys, o_.head, t.queries, static_cast<T>(scale),
            {left, t.keys}, rows_from(right, t.query), t.query == 0 ? T(0) : T(1), sum);
  }
  Matrix<const T> copied(const Matrix<const T>& m, std::int64_t rows, ScratchBuffer<T>& to) const {
    T* out = sized(to, rows * o_.head);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(m.data + i * m.stride, o_.head, out + i * o_.head);
    }
    return {out, o_.head};
  }

  HeadOperands<T> o_;
  ScratchBuffer<T> q_, k_, v_;
};

// By pairs. REQUIRES: has_pair_products() and an even head.
template <>
class HeadProducts<float, c10::BFloat16> {
 public:
  using S = c10::BFloat16;
  static std::int64_t padded_keys(std::int64_t keys) { return 2 * pairs_of(keys); }

  void begin_forward(const HeadOperands<S>& operands, std::int64_t key_block);
  void begin_backward(const HeadOperands<S>& operands, std::int64_t key_block, bool scores_wanted);
  void scores(const Tile& t, float* s);
  void probability_gradient(const Tile& t, float* dp);
  void sum_mix(const S* p, const Tile& t, const Matrix<float>& sum);
  void sum_query_gradient(const S* ds, const Tile& t, const Matrix<float>& sum);
  void sum_value_gradient(const S* p, const Tile& t, const Matrix<float>& sum);
  void sum_key_gradient(const S* ds, const Tile& t, const Matrix<float>& sum);
  void mix(const S* p, const Tile& t);
  void value_gradient(const S* p, const Tile& t);
  void key_gradient(const S* ds, const Tile& t);
  void query_gradient(const S* ds, const Tile& t);
  void end_backward();

 private:
  // The columns of k or v as right operands, key block after key block.
  void pair_key_blocks(const Matrix<const S>& rows, std::int64_t key_block,
                       ScratchBuffer<Pair16>& columns) const;
  void pair_keys(const Matrix<const S>& rows, ScratchBuffer<Pair16>& paired) const;
  void by_keys(const Matrix<const S>& left, const ScratchBuffer<Pair16>& columns, const Tile& t,
               float* made) const;
  void over_keys(const S* left, const ScratchBuffer<Pair16>& rows, const Tile& t,
                 const Matrix<float>& sum) const;
  void over_queries(const S* left, const Matrix<const S>& right, const Tile& t,
                    const Matrix<float>& sum);
  Matrix<float> of_keys(ScratchBuffer<float>& sums) const {
    return {sized(sums, o_.keys * o_.head), o_.head};
  }

  HeadOperands<S> o_;
  ScratchBuffer<Pair16> k_columns_, v_columns_, k_rows_, v_rows_, left_, right_;
  ScratchBuffer<float> rows_, dk_, dv_;
};

}  // namespace pareprop
