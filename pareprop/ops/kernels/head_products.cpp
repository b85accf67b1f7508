#include "pareprop/ops/kernels/head_products.h"

namespace pareprop {

using c10::BFloat16;
using PairProducts = HeadProducts<float, BFloat16>;

void PairProducts::pair_key_blocks(const Matrix<const BFloat16>& rows, std::int64_t key_block,
                                   ScratchBuffer<Pair16>& columns) const {
  Pair16* out = sized(columns, o_.head / 2 * o_.keys);
  for (std::int64_t key = 0; key < o_.keys; key += key_block) {
    pair_columns(rows_from(rows, key).data, rows.stride, std::min(key_block, o_.keys - key),
                 o_.head, out + o_.head / 2 * key);
  }
}

void PairProducts::pair_keys(const Matrix<const BFloat16>& rows,
                             ScratchBuffer<Pair16>& paired) const {
  pair_rows(rows.data, rows.stride, o_.keys, o_.head, sized(paired, pairs_of(o_.keys) * o_.head));
}

void PairProducts::begin_forward(const HeadOperands<BFloat16>& operands, std::int64_t key_block) {
  o_ = operands;
  pair_key_blocks(o_.k, key_block, k_columns_);
  pair_keys(o_.v, v_rows_);
}

void PairProducts::begin_backward(const HeadOperands<BFloat16>& operands, std::int64_t key_block,
                                  bool scores_wanted) {
  o_ = operands;
  if (scores_wanted) pair_key_blocks(o_.k, key_block, k_columns_);
  pair_key_blocks(o_.v, key_block, v_columns_);
  pair_keys(o_.k, k_rows_);
}

void PairProducts::by_keys(const Matrix<const BFloat16>& left, const ScratchBuffer<Pair16>& columns,
                           const Tile& t, float* made) const {
  multiply_pairs(t.queries, t.keys, o_.head, rows_from(left, t.query),
                 columns.data() + o_.head / 2 * t.key, false, {made, t.keys});
}

void PairProducts::over_keys(const BFloat16* left, const ScratchBuffer<Pair16>& rows, const Tile& t,
                             const Matrix<float>& sum) const {
  const std::int64_t padded = padded_keys(t.keys);
  multiply_pairs(t.queries, o_.head, padded, {left, padded}, rows.data() + t.key / 2 * o_.head,
                 t.key > 0, sum);
}

void PairProducts::over_queries(const BFloat16* left, const Matrix<const BFloat16>& right,
                                const Tile& t, const Matrix<float>& sum) {
  const std::int64_t pairs = pairs_of(t.queries);
  Pair16* a = sized(left_, t.keys * pairs);
  pair_rows_transposed(left, padded_keys(t.keys), t.queries, t.keys, a);
  Pair16* b = sized(right_, pairs * o_.head);
  pair_rows(rows_from(right, t.query).data, right.stride, t.queries, o_.head, b);
  multiply_pairs(t.keys, o_.head, 2 * pairs, {reinterpret_cast<const BFloat16*>(a), 2 * pairs}, b,
                 t.query > 0, sum);
}

void PairProducts::scores(const Tile& t, float* s) { by_keys(o_.q, k_columns_, t, s); }

void PairProducts::probability_gradient(const Tile& t, float* dp) {
  by_keys(o_.doutput, v_columns_, t, dp);
}

void PairProducts::sum_mix(const BFloat16* p, const Tile& t, const Matrix<float>& sum) {
  over_keys(p, v_rows_, t, sum);
}

void PairProducts::sum_query_gradient(const BFloat16* ds, const Tile& t, const Matrix<float>& sum) {
  over_keys(ds, k_rows_, t, sum);
}

void PairProducts::sum_value_gradient(const BFloat16* p, const Tile& t, const Matrix<float>& sum) {
  over_queries(p, o_.doutput, t, sum);
}

void PairProducts::sum_key_gradient(const BFloat16* ds, const Tile& t, const Matrix<float>& sum) {
  over_queries(ds, o_.q, t, sum);
}

void PairProducts::mix(const BFloat16* p, const Tile& t) {
  float* made = sized(rows_, t.queries * o_.head);
  sum_mix(p, t, {made, o_.head});
  round_rows(made, t.queries, o_.head, 1.0F, rows_from(o_.output, t.query).data, o_.output.stride);
}

void PairProducts::value_gradient(const BFloat16* p, const Tile& t) {
  sum_value_gradient(p, t, of_keys(dv_));
}

void PairProducts::key_gradient(const BFloat16* ds, const Tile& t) {
  sum_key_gradient(ds, t, of_keys(dk_));
}

void PairProducts::query_gradient(const BFloat16* ds, const Tile& t) {
  float* made = sized(rows_, t.queries * o_.head);
  sum_query_gradient(ds, t, {made, o_.head});
  round_rows(made, t.queries, o_.head, static_cast<float>(o_.scale), rows_from(o_.dq, t.query).data,
             o_.dq.stride);
}

void PairProducts::end_backward() {
  round_rows(dv_.data(), o_.keys, o_.head, 1.0F, o_.dv.data, o_.dv.stride);
  round_rows(dk_.data(), o_.keys, o_.head, static_cast<float>(o_.scale), o_.dk.data, o_.dk.stride);
}

}  // namespace pareprop
