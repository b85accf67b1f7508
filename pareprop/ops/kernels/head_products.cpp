#include "pareprop/ops/kernels/head_products.h"

namespace pareprop {

using c10::BFloat16;

void HeadProducts<float, BFloat16>::begin_forward(const HeadOperands<BFloat16>& operands) {
  o_ = operands;
  pair_columns(o_.k.data, o_.k.stride, o_.keys, o_.head, sized(k_columns_, o_.head / 2 * o_.keys));
  pair_rows(o_.v.data, o_.v.stride, o_.keys, o_.head, sized(v_rows_, pairs_of(o_.keys) * o_.head));
}

void HeadProducts<float, BFloat16>::begin_backward(const HeadOperands<BFloat16>& operands,
                                                   bool scores_wanted) {
  o_ = operands;
  if (scores_wanted) {
    pair_columns(o_.k.data, o_.k.stride, o_.keys, o_.head,
                 sized(k_columns_, o_.head / 2 * o_.keys));
  }
  pair_columns(o_.v.data, o_.v.stride, o_.keys, o_.head, sized(v_columns_, o_.head / 2 * o_.keys));
  pair_rows(o_.k.data, o_.k.stride, o_.keys, o_.head, sized(k_rows_, pairs_of(o_.keys) * o_.head));
}

void HeadProducts<float, BFloat16>::scores(std::int64_t first, std::int64_t rows, float* s) {
  multiply_pairs(rows, o_.keys, o_.head, {o_.q.data + first * o_.q.stride, o_.q.stride},
                 k_columns_.data(), false, {s, o_.keys});
}

void HeadProducts<float, BFloat16>::mix(const BFloat16* p, std::int64_t first, std::int64_t rows) {
  const std::int64_t padded = padded_keys(o_.keys);
  float* made = sized(rows_, rows * o_.head);
  multiply_pairs(rows, o_.head, padded, {p, padded}, v_rows_.data(), false, {made, o_.head});
  round_rows(made, rows, o_.head, 1.0F, o_.output.data + first * o_.output.stride,
             o_.output.stride);
}

void HeadProducts<float, BFloat16>::add_transposed(const BFloat16* left,
                                                   const Matrix<const BFloat16>& right,
                                                   std::int64_t first, std::int64_t rows,
                                                   std::vector<float>& sum) {
  const std::int64_t pairs = pairs_of(rows);
  Pair16* a = sized(left_, o_.keys * pairs);
  pair_rows_transposed(left, padded_keys(o_.keys), rows, o_.keys, a);
  Pair16* b = sized(right_, pairs * o_.head);
  pair_rows(right.data + first * right.stride, right.stride, rows, o_.head, b);
  multiply_pairs(o_.keys, o_.head, 2 * pairs, {reinterpret_cast<const BFloat16*>(a), 2 * pairs}, b,
                 first > 0, {sized(sum, o_.keys * o_.head), o_.head});
}

void HeadProducts<float, BFloat16>::value_gradient(const BFloat16* p, std::int64_t first,
                                                   std::int64_t rows) {
  add_transposed(p, o_.doutput, first, rows, dv_);
}

void HeadProducts<float, BFloat16>::key_gradient(const BFloat16* ds, std::int64_t first,
                                                 std::int64_t rows) {
  add_transposed(ds, o_.q, first, rows, dk_);
}

void HeadProducts<float, BFloat16>::probability_gradient(std::int64_t first, std::int64_t rows,
                                                         float* dp) {
  multiply_pairs(rows, o_.keys, o_.head,
                 {o_.doutput.data + first * o_.doutput.stride, o_.doutput.stride},
                 v_columns_.data(), false, {dp, o_.keys});
}

void HeadProducts<float, BFloat16>::query_gradient(const BFloat16* ds, std::int64_t first,
                                                   std::int64_t rows) {
  const std::int64_t padded = padded_keys(o_.keys);
  float* made = sized(rows_, rows * o_.head);
  multiply_pairs(rows, o_.head, padded, {ds, padded}, k_rows_.data(), false, {made, o_.head});
  round_rows(made, rows, o_.head, static_cast<float>(o_.scale), o_.dq.data + first * o_.dq.stride,
             o_.dq.stride);
}

void HeadProducts<float, BFloat16>::end_backward() {
  round_rows(dv_.data(), o_.keys, o_.head, 1.0F, o_.dv.data, o_.dv.stride);
  round_rows(dk_.data(), o_.keys, o_.head, static_cast<float>(o_.scale), o_.dk.data, o_.dk.stride);
}

}  // namespace pareprop
