#include "pareprop/ops/kernels/long_attention.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include "pareprop/ops/kernels/one_head.h"
#include "pareprop/ops/kernels/row_kernels.h"
#include "pareprop/ops/shared_parts.h"

namespace pareprop {
namespace {

// Queries and keys of a tile: its scores and their gradients stay in a core's second cache.
constexpr std::int64_t kQueryBlock = 128, kKeyBlock = 512;

std::int64_t blocks(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

// The parts of a problem: query block by query block of head after head.
template <typename T, typename S>
struct Parts {
  explicit Parts(const AttentionProblem<T, S>& problem)
      : a(problem),
        per_head(blocks(a.queries, kQueryBlock)),
        key_blocks(blocks(a.keys, kKeyBlock)) {}

  std::int64_t count() const { return a.batch * a.heads * per_head; }
  std::int64_t head(std::int64_t part) const { return part / per_head; }
  std::int64_t query_block(std::int64_t part) const { return part % per_head; }
  Tile tile(std::int64_t part, std::int64_t key_block) const {
    const std::int64_t query = query_block(part) * kQueryBlock, key = key_block * kKeyBlock;
    return {query, std::min(kQueryBlock, a.queries - query), key,
            std::min(kKeyBlock, a.keys - key)};
  }

  const AttentionProblem<T, S>& a;
  const std::int64_t per_head, key_blocks;
};

// What one thread works with.
template <typename T, typename S>
struct Workspace {
  explicit Workspace(const AttentionProblem<T, S>& a)
      : scores(kQueryBlock * kKeyBlock), sums(size(kQueryBlock * a.head)) {}
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  // Of rows of scores in T, what products take: themselves, or `other`.
  S* as_values(T* of_scores, ScratchBuffer<S>& other) {
    if constexpr (std::is_same_v<T, S>) {
      return of_scores;
    } else {
      return sized(other, kQueryBlock * kKeyBlock);
    }
  }

  HeadProducts<T, S> products;
  std::int64_t head = -1;  // whose operands the products have
  ScratchBuffer<T> scores, dscores, sums, row, factors;
  ScratchBuffer<S> p, dropped, ds;
  T top[kQueryBlock] = {}, total[kQueryBlock] = {};
};

// row *= what dropout draws for it
template <typename T, typename U>
void multiply(const ScratchBuffer<T>& factors, std::int64_t count, const U* row, U* product) {
  for (std::int64_t j = 0; j < count; ++j) {
    product[j] = static_cast<U>(static_cast<T>(row[j]) * factors[static_cast<std::size_t>(j)]);
  }
}

template <typename T, typename S>
class LongForward {
 public:
  LongForward(const Parts<T, S>& parts, const HeadRows<S>& output, T* log_sums)
      : parts_(parts), a_(parts.a), output_(output), log_sums_(log_sums), w_(parts.a) {}

  void run(std::int64_t part) {
    const std::int64_t head = parts_.head(part), b = head / a_.heads, h = head % a_.heads;
    if (w_.head != head) w_.products.begin_forward(head_operands(a_, b, h), kKeyBlock);
    w_.head = head;
    const ScoreTerms<T, S> terms(a_, b, h);
    const Matrix<T> mixed{w_.sums.data(), a_.head};
    std::fill_n(w_.top, kQueryBlock, -std::numeric_limits<T>::infinity());
    std::fill_n(w_.total, kQueryBlock, T(0));
    for (std::int64_t k = 0; k < parts_.key_blocks; ++k) {
      const Tile t = parts_.tile(part, k);
      w_.products.sum_mix(probabilities(terms, t), t, mixed);
    }
    finish(terms, b, h, parts_.tile(part, 0));
  }

 private:
  // In proportion to the largest so far. What was mixed before is brought into that proportion.
  const S* probabilities(const ScoreTerms<T, S>& terms, const Tile& t) {
    const std::int64_t stride = HeadProducts<T, S>::padded_keys(t.keys);
    S* p = w_.as_values(w_.scores.data(), w_.p);
    w_.products.scores(t, w_.scores.data());
    for (std::int64_t i = 0; i < t.queries; ++i) {
      S* row = p + i * stride;
      T change = 1;
      row_kernels<T, S>().softmax_part(w_.scores.data() + i * t.keys, a_.scale,
                                       terms.bias_row(t, i, w_.row), terms.mask_row(t, i), t.keys,
                                       w_.top + i, w_.total + i, &change, row);
      std::fill(row + t.keys, row + stride, S(0));
      if (t.key > 0 && change != T(1)) {
        T* mixed = w_.sums.data() + i * a_.head;
        row_kernels<T, T>().scaled(mixed, change, a_.head, mixed);
      }
      if (!a_.dropout) continue;
      terms.draw_row(t, i, sized(w_.factors, t.keys));
      multiply(w_.factors, t.keys, row, row);
    }
    return p;
  }

  void finish(const ScoreTerms<T, S>& terms, std::int64_t b, std::int64_t h, const Tile& t) {
    for (std::int64_t i = 0; i < t.queries; ++i) {
      row_kernels<T, S>().scaled(w_.sums.data() + i * a_.head, T(1) / w_.total[i], a_.head,
                                 output_.at(b, h, t.query + i));
      if (log_sums_ == nullptr) continue;
      log_sums_[terms.first_query() + t.query + i] = w_.top[i] + std::log(w_.total[i]);
    }
  }

  const Parts<T, S>& parts_;
  const AttentionProblem<T, S>& a_;
  const HeadRows<S> output_;
  T* const log_sums_;
  Workspace<T, S> w_;
};

// Note [The wave of a gradient]
// The gradients of k and v are sums over all queries, so query blocks of one head cannot each add
// to them as they please: the bits would depend on who came first. Here they add in order. A thread
// may work on a key block as soon as the query block before it is through with that key block. So
// threads follow one another over the keys of a head, one block apart, and the last one finds the
// sums complete. It rounds them and writes them, even over k and v: nobody reads those any more.
//
// Parts are taken in order, so whom a part waits for has been taken by a thread that works on it.
class Wave {
 public:
  Wave(std::int64_t parts, std::int64_t key_blocks)
      : key_blocks_(static_cast<int>(key_blocks)),
        done_(std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(parts))) {}

  // Waits until `part` is through with its first `key_blocks` key blocks.
  void wait_for(std::int64_t part, std::int64_t key_blocks) const {
    const std::atomic<int>& done = done_[static_cast<std::size_t>(part)];
    for (int seen; (seen = done.load(std::memory_order_acquire)) < key_blocks;) done.wait(seen);
  }
  void wait_for(std::int64_t part) const { wait_for(part, key_blocks_); }

  void reach(std::int64_t part, std::int64_t key_blocks) {
    std::atomic<int>& done = done_[static_cast<std::size_t>(part)];
    done.store(static_cast<int>(key_blocks), std::memory_order_release);
    done.notify_all();
  }
  // Of a part that failed: nobody shall wait for it.
  void reach_end(std::int64_t part) { reach(part, key_blocks_); }

 private:
  const int key_blocks_;
  std::unique_ptr<std::atomic<int>[]> done_;
};

template <typename T, typename S>
class LongBackward {
 public:
  LongBackward(const Parts<T, S>& parts, const HeadRows<const S>& output, const T* log_sums,
               const HeadRows<const S>& doutput, const AttentionGradients<T, S>& gradients, T* sums,
               Wave& wave)
      : parts_(parts),
        a_(parts.a),
        output_(output),
        log_sums_(log_sums),
        doutput_(doutput),
        gradients_(gradients),
        sums_(sums),
        wave_(wave),
        w_(parts.a) {
    w_.dscores.resize(w_.scores.size());
  }

  void run(std::int64_t part) {
    try {
      run_part(part);
    } catch (...) {
      wave_.reach_end(part);
      throw;
    }
  }

 private:
  void run_part(std::int64_t part) {
    const std::int64_t head = parts_.head(part), b = head / a_.heads, h = head % a_.heads;
    begin(head, b, h);
    const ScoreTerms<T, S> terms(a_, b, h);
    const Tile first = parts_.tile(part, 0);
    const T* shifts = output_gradients(b, h, first);
    const bool last = parts_.query_block(part) + 1 == parts_.per_head;
    const std::int64_t sample = a_.heads * parts_.per_head;
    if (parts_.query_block(part) == 0 && head >= kHeadsAtOnce) {
      wave_.wait_for((head - kHeadsAtOnce + 1) * parts_.per_head - 1);  // whose sums these were
    }
    if (gradients_.bias != nullptr && b > 0) wave_.wait_for(part - sample);
    for (std::int64_t k = 0; k < parts_.key_blocks; ++k) {
      const Tile t = parts_.tile(part, k);
      const Values values = tile_gradients(terms, t, shifts);
      terms.add_gradients(t, w_.dscores.data(), gradients_, gradients_.bias);
      w_.products.sum_query_gradient(values.ds, t, {w_.sums.data(), a_.head});
      if (parts_.query_block(part) > 0) wave_.wait_for(part - 1, k + 1);
      const Matrix<T> dk = key_sums(head, 0, t), dv = key_sums(head, 1, t);
      w_.products.sum_value_gradient(values.p, t, dv);
      w_.products.sum_key_gradient(values.ds, t, dk);
      if (last) {
        write(dk, t.keys, a_.scale, gradients_.k, b, h, t.key);
        write(dv, t.keys, T(1), gradients_.v, b, h, t.key);
      }
      if (k + 1 == parts_.key_blocks) {
        write({w_.sums.data(), a_.head}, t.queries, a_.scale, gradients_.q, b, h, t.query);
      }
      wave_.reach(part, k + 1);
    }
  }

  void begin(std::int64_t head, std::int64_t b, std::int64_t h) {
    if (w_.head == head) return;
    HeadOperands<S> operands = head_operands(a_, b, h);
    operands.doutput = head_rows(doutput_, b, h);
    w_.products.begin_backward(operands, kKeyBlock, /*scores_wanted=*/true);
    w_.head = head;
  }

  // For each query, the sum of all p * dp: that of output * doutput.
  const T* output_gradients(std::int64_t b, std::int64_t h, const Tile& t) {
    for (std::int64_t i = 0; i < t.queries; ++i) {
      const S *o = output_.at(b, h, t.query + i), *d = doutput_.at(b, h, t.query + i);
      T sum = 0;
      for (std::int64_t j = 0; j < a_.head; ++j) sum += static_cast<T>(o[j]) * static_cast<T>(d[j]);
      w_.total[i] = sum;
    }
    return w_.total;
  }

  // What products take: probabilities after dropout, and gradients of scores.
  struct Values {
    const S *p, *ds;
  };

  // Gradients of scores are in w_.dscores as well.
  Values tile_gradients(const ScoreTerms<T, S>& terms, const Tile& t, const T* shifts) {
    const std::int64_t stride = HeadProducts<T, S>::padded_keys(t.keys);
    T *s = w_.scores.data(), *dp = w_.dscores.data();
    S *p = w_.as_values(s, w_.p), *ds = w_.as_values(dp, w_.ds);
    S* used = a_.dropout ? sized(w_.dropped, kQueryBlock * kKeyBlock) : p;
    w_.products.scores(t, s);
    w_.products.probability_gradient(t, dp);
    const T* log_sums = log_sums_ + terms.first_query() + t.query;
    for (std::int64_t i = 0; i < t.queries; ++i) {
      S *p_row = p + i * stride, *used_row = used + i * stride, *ds_row = ds + i * stride;
      T* dp_row = dp + i * t.keys;
      row_kernels<T, S>().exponentials(s + i * t.keys, a_.scale, terms.bias_row(t, i, w_.row),
                                       terms.mask_row(t, i), log_sums[i], t.keys, p_row);
      if (a_.dropout) {
        terms.draw_row(t, i, sized(w_.factors, t.keys));
        multiply(w_.factors, t.keys, static_cast<const S*>(p_row), used_row);
        multiply(w_.factors, t.keys, static_cast<const T*>(dp_row), dp_row);
      }
      row_kernels<T, S>().shifted_product(p_row, dp_row, shifts[i], t.keys, ds_row);
      std::fill(used_row + t.keys, used_row + stride, S(0));
      std::fill(ds_row + t.keys, ds_row + stride, S(0));
    }
    return {used, ds};
  }

  Matrix<T> key_sums(std::int64_t head, std::int64_t which, const Tile& t) const {
    return {sums_ + (((head % kHeadsAtOnce) * 2 + which) * a_.keys + t.key) * a_.head, a_.head};
  }

  void write(const Matrix<T>& sums, std::int64_t rows, T scale, const HeadRows<S>& to,
             std::int64_t b, std::int64_t h, std::int64_t first) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      row_kernels<T, S>().scaled(sums.data + i * sums.stride, scale, a_.head,
                                 to.at(b, h, first + i));
    }
  }

  const Parts<T, S>& parts_;
  const AttentionProblem<T, S>& a_;
  const HeadRows<const S> output_;
  const T* const log_sums_;
  const HeadRows<const S> doutput_;
  const AttentionGradients<T, S>& gradients_;
  T* const sums_;
  Wave& wave_;
  Workspace<T, S> w_;
};

// Calls run(part) of Way(parts, arguments...), of which each thread has its own.
template <typename Way, typename T, typename S, typename... Arguments>
void by_parts(const Parts<T, S>& parts, Arguments&... arguments) {
  run_parts(parts.count(), [&](NextPart& next) {
    Way way(parts, arguments...);
    for (std::int64_t part; next.take(part);) way.run(part);
    end_products<T, S>();
  });
}

}  // namespace

template <typename T, typename S>
void long_attention_forward(const AttentionProblem<T, S>& a, HeadRows<S> output, T* log_sums) {
  by_parts<LongForward<T, S>>(Parts<T, S>(a), output, log_sums);
}

template <typename T, typename S>
void long_attention_backward(const AttentionProblem<T, S>& a, HeadRows<const S> output,
                             const T* log_sums, HeadRows<const S> doutput,
                             const AttentionGradients<T, S>& gradients, T* sums) {
  const Parts<T, S> parts(a);
  Wave wave(parts.count(), parts.key_blocks);
  by_parts<LongBackward<T, S>>(parts, output, log_sums, doutput, gradients, sums, wave);
}

#define PAREPROP_LONG_ATTENTION(T, S)                                                     \
  template void long_attention_forward(const AttentionProblem<T, S>&, HeadRows<S>, T*);   \
  template void long_attention_backward(const AttentionProblem<T, S>&, HeadRows<const S>, \
                                        const T*, HeadRows<const S>,                      \
                                        const AttentionGradients<T, S>&, T*);
PAREPROP_LONG_ATTENTION(float, float)
PAREPROP_LONG_ATTENTION(double, double)
PAREPROP_LONG_ATTENTION(float, c10::BFloat16)
#undef PAREPROP_LONG_ATTENTION

}  // namespace pareprop
