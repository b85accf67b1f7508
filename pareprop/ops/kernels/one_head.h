#pragma once

#include <algorithm>
#include <type_traits>

#include "pareprop/ops/kernels/attention_kernel.h"
#include "pareprop/ops/kernels/head_products.h"

// One head of one sample of an AttentionProblem.
namespace pareprop {

template <typename U>
Matrix<U> head_rows(const HeadRows<U>& rows, std::int64_t b, std::int64_t h) {
  return {rows.at(b, h, 0), rows.row};
}

// q, k and v; what is written is the caller's to add.
template <typename T, typename S>
HeadOperands<S> head_operands(const AttentionProblem<T, S>& a, std::int64_t b, std::int64_t h) {
  HeadOperands<S> o;
  o.queries = a.queries;
  o.keys = a.keys;
  o.head = a.head;
  o.scale = static_cast<double>(a.scale);
  o.q = head_rows(a.q, b, h);
  o.k = head_rows(a.k, b, h);
  o.v = head_rows(a.v, b, h);
  return o;
}

// To be called by a thread after its last head.
template <typename T, typename S>
void end_products() {
  if constexpr (!std::is_same_v<T, S>) end_pair_products();
}

// What is added to the scores of one head of one sample.
template <typename T, typename S>
class ScoreTerms {
 public:
  ScoreTerms(const AttentionProblem<T, S>& problem, std::int64_t b, std::int64_t h)
      : a_(problem), b_(b), h_(h) {}

  // Where the queries of this head begin in a (batch, heads, queries, ...) array.
  std::int64_t first_query() const { return (b_ * a_.heads + h_) * a_.queries; }

  // What dropout multiplies row i of a tile with. REQUIRES: there is dropout.
  void draw_row(const Tile& t, std::int64_t i, T* factors) const {
    const std::int64_t begin = a_.dropout->part.begin(a_.batch * a_.heads * a_.queries * a_.keys);
    a_.dropout->fill(begin + (first_query() + t.query + i) * a_.keys + t.key, t.keys, factors);
  }

  // Row i of a tile: bias and positions, in `row` where they have to be added up; and the mask.
  // Null where there is none.
  const T* bias_row(const Tile& t, std::int64_t i, ScratchBuffer<T>& row) const {
    const std::int64_t query = t.query + i;
    const T* bias =
        a_.bias == nullptr ? nullptr : a_.bias + (h_ * a_.queries + query) * a_.keys + t.key;
    if (a_.position_rows == nullptr) return bias;
    const T* by_row = a_.position_rows + (first_query() + query) * a_.map_rows;
    const T* by_column = a_.position_columns + (first_query() + query) * a_.map_columns;
    T* sum = sized(row, t.keys);
    along_map(t, [&](std::int64_t map_row, std::int64_t column, std::int64_t count) {
      for (std::int64_t j = 0; j < count; ++j) sum[j] = by_row[map_row] + by_column[column + j];
      sum += count;
    });
    for (std::int64_t j = 0; bias != nullptr && j < t.keys; ++j) {
      row[static_cast<std::size_t>(j)] += bias[j];
    }
    return row.data();
  }

  const T* mask_row(const Tile& t, std::int64_t i) const {
    if (a_.mask == nullptr) return nullptr;
    const std::int64_t row = a_.mask_rows == 1 ? 0 : t.query + i;
    return a_.mask + ((b_ % a_.groups) * a_.mask_rows + row) * a_.keys + t.key;
  }

  // Adds the gradients of a tile's scores, `ds` (queries, keys), to those of the terms; `bias` and
  // the positions' may be null.
  void add_gradients(const Tile& t, const T* ds, const AttentionGradients<T, S>& gradients,
                     T* bias) const {
    for (std::int64_t i = 0; i < t.queries; ++i, ds += t.keys) {
      const std::int64_t query = t.query + i;
      if (bias != nullptr) {
        T* sum = bias + (h_ * a_.queries + query) * a_.keys + t.key;
        for (std::int64_t j = 0; j < t.keys; ++j) sum[j] += ds[j];
      }
      if (gradients.position_rows == nullptr) continue;
      T* by_row = gradients.position_rows + (first_query() + query) * a_.map_rows;
      T* by_column = gradients.position_columns + (first_query() + query) * a_.map_columns;
      const T* next = ds;
      along_map(t, [&](std::int64_t map_row, std::int64_t column, std::int64_t count) {
        T sum = 0;
        for (std::int64_t j = 0; j < count; ++j) {
          sum += next[j];
          by_column[column + j] += next[j];
        }
        by_row[map_row] += sum;
        next += count;
      });
    }
  }

 private:
  // Calls body(row of the map, first column, columns) for the keys of a tile.
  template <typename Body>
  void along_map(const Tile& t, const Body& body) const {
    for (std::int64_t key = t.key; key < t.key + t.keys;) {
      const std::int64_t column = key % a_.map_columns;
      const std::int64_t count = std::min(a_.map_columns - column, t.key + t.keys - key);
      body(key / a_.map_columns, column, count);
      key += count;
    }
  }

  const AttentionProblem<T, S>& a_;
  std::int64_t b_, h_;
};

}  // namespace pareprop
