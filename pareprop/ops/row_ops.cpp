#include "pareprop/ops/row_ops.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <type_traits>

#include "pareprop/ops/device_path.h"
#include "pareprop/ops/kernels/row_kernels.h"

namespace pareprop {
namespace {

using at::Tensor;

// Calls run<T, S>() for the types of weights and of values inside a branch; false: no kernel.
template <typename Run>
bool with_kernels(const Tensor& t, at::ScalarType weights, at::ScalarType values, const Run& run) {
  if (!runs_kernels(t)) return false;
  if (weights == at::kFloat && values == at::kFloat) {
    run.template operator()<float, float>();
  } else if (weights == at::kDouble && values == at::kDouble) {
    run.template operator()<double, double>();
  } else if (weights == at::kFloat && values == at::kBFloat16) {
    run.template operator()<float, c10::BFloat16>();
  } else {
    return false;
  }
  return true;
}

// Values that one thread should at least get.
constexpr std::int64_t kGrain = 16384;

// Bodies of these run nowhere on the meta device: see its note.
template <typename Body>
void split_rows(const Tensor& t, std::int64_t rows, std::int64_t width, const Body& body) {
  if (t.is_meta()) return;
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(width, 1));
  at::parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) { body(begin, end); });
}

// Rows in at most kChunks chunks, each with a row of its own in a (chunks, width) tensor of sums:
// body(begin, end, chunk).
constexpr std::int64_t kChunks = 32, kLeastRows = 16;

std::int64_t chunk_count(std::int64_t rows) {
  return std::clamp<std::int64_t>((rows + kLeastRows - 1) / kLeastRows, 1, kChunks);
}

template <typename Body>
void split_chunks(const Tensor& t, std::int64_t rows, std::int64_t width, const Body& body) {
  if (t.is_meta()) return;
  const std::int64_t chunks = chunk_count(rows);
  const std::int64_t grain = rows * width < kGrain ? chunks : 1;
  at::parallel_for(0, chunks, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) body(c * rows / chunks, (c + 1) * rows / chunks, c);
  });
}

template <typename T>
Tensor sum_chunks(const Tensor& partial) {
  Tensor sums = at::zeros({partial.size(1)}, partial.options());
  if (sums.is_meta()) return sums;
  row_kernels<T, T>().add_rows(partial.const_data_ptr<T>(), partial.size(0), partial.size(1),
                               sums.mutable_data_ptr<T>());
  return sums;
}

std::int64_t row_count(const Tensor& t) { return t.size(-1) == 0 ? 0 : t.numel() / t.size(-1); }

}  // namespace

std::tuple<Tensor, Tensor, Tensor> norm_rows(const Tensor& x, const Tensor& weight,
                                             const Tensor& bias, double eps, at::ScalarType dtype) {
  auto sizes = x.sizes().vec();
  sizes.back() = 1;
  Tensor y, mean, rstd;
  const auto make = [&](at::ScalarType type) {
    y = at::empty(x.sizes(), x.options().dtype(type));
    mean = at::empty(sizes, x.options());
    rstd = at::empty(sizes, x.options());
  };
  const Tensor dense = x.contiguous();
  const std::int64_t width = x.size(-1), rows = row_count(x);
  const bool done = weight.scalar_type() == x.scalar_type() &&
                    with_kernels(x, x.scalar_type(), dtype, [&]<typename T, typename S>() {
                      make(dtype);
                      split_rows(x, rows, width, [&](std::int64_t begin, std::int64_t end) {
                        row_kernels<T, S>().norm(
                            dense.const_data_ptr<T>() + begin * width, weight.const_data_ptr<T>(),
                            bias.const_data_ptr<T>(), eps, end - begin, width,
                            y.mutable_data_ptr<S>() + begin * width,
                            mean.mutable_data_ptr<T>() + begin, rstd.mutable_data_ptr<T>() + begin);
                      });
                    });
  if (done) return {y, mean, rstd};
  if (x.is_meta()) {  // where torch has it in Python only
    make(x.scalar_type());
  } else {
    std::tie(y, mean, rstd) = at::native_layer_norm(dense, weight.sizes(), weight, bias, eps);
  }
  return {y.to(dtype), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> norm_rows_backward(const Tensor& dy, const Tensor& x,
                                                      const Tensor& weight, const Tensor& mean,
                                                      const Tensor& rstd) {
  Tensor dx;
  const Tensor dense = x.contiguous(), gradient = dy.contiguous();
  const std::int64_t width = x.size(-1), rows = row_count(x);
  Tensor dweight, dbias;
  const bool done =
      weight.scalar_type() == x.scalar_type() &&
      with_kernels(x, x.scalar_type(), dy.scalar_type(), [&]<typename T, typename S>() {
        dx = at::empty(x.sizes(), x.options());
        const Tensor weights = at::zeros({chunk_count(rows), width}, weight.options());
        const Tensor biases = at::zeros({chunk_count(rows), width}, weight.options());
        split_chunks(x, rows, width, [&](std::int64_t begin, std::int64_t end, std::int64_t chunk) {
          row_kernels<T, S>().norm_backward(
              gradient.const_data_ptr<S>() + begin * width,
              dense.const_data_ptr<T>() + begin * width, weight.const_data_ptr<T>(),
              mean.const_data_ptr<T>() + begin, rstd.const_data_ptr<T>() + begin, end - begin,
              width, dx.mutable_data_ptr<T>() + begin * width,
              weights.mutable_data_ptr<T>() + chunk * width,
              biases.mutable_data_ptr<T>() + chunk * width);
        });
        dweight = sum_chunks<T>(weights);
        dbias = sum_chunks<T>(biases);
      });
  if (done) return {dx, dweight, dbias};
  const Tensor wide = gradient.to(x.scalar_type());
  if (x.is_meta()) {
    return {at::empty(x.sizes(), x.options()), at::empty_like(weight), at::empty_like(weight)};
  }
  return at::native_layer_norm_backward(wide, dense, weight.sizes(), mean, rstd, weight, weight,
                                        {true, true, true});
}

void bias_gelu(const Tensor& x, const Tensor& bias, const Tensor& h, const Tensor& slope) {
  const std::int64_t width = h.size(-1), rows = row_count(h);
  const bool done =
      with_kernels(h, bias.scalar_type(), h.scalar_type(), [&]<typename T, typename S>() {
        split_rows(h, rows, width, [&](std::int64_t begin, std::int64_t end) {
          row_kernels<T, S>().bias_gelu(
              x.const_data_ptr<S>() + begin * width, bias.const_data_ptr<T>(), end - begin, width,
              h.mutable_data_ptr<S>() + begin * width,
              slope.defined() ? slope.mutable_data_ptr<S>() + begin * width : nullptr);
        });
      });
  if (done) return;
  const Tensor sum = x.add(bias).to(h.scalar_type());
  if (slope.defined()) slope.copy_(at::gelu_backward(at::ones_like(sum), sum));
  h.copy_(at::gelu(sum));
}

Tensor add_scaled(Tensor u, const Tensor& f, double factor, bool over_u) {
  const bool fixed = u.scalar_type() == at::kInt;
  const bool dense = u.is_contiguous() && f.is_contiguous();
  Tensor sum;
  const auto add = [&]<typename T, typename S>() {
    sum = over_u ? u : at::empty_like(u);
    split_rows(u, u.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      const S* from = f.const_data_ptr<S>() + begin;
      if constexpr (std::is_same_v<T, float>) {
        if (fixed) {
          return row_kernels<T, S>().add_rounded(u.const_data_ptr<std::int32_t>() + begin, from,
                                                 static_cast<T>(factor), end - begin,
                                                 sum.mutable_data_ptr<std::int32_t>() + begin);
        }
      }
      row_kernels<T, S>().add_scaled(u.const_data_ptr<T>() + begin, from, static_cast<T>(factor),
                                     end - begin, sum.mutable_data_ptr<T>() + begin);
    });
  };
  const auto type = fixed ? at::kFloat : u.scalar_type();
  if (dense && with_kernels(u, type, f.scalar_type(), add)) return sum;
  const bool whole = !at::isFloatingType(u.scalar_type());
  const auto wide = u.scalar_type() == at::kLong ? at::kDouble : at::kFloat;
  const Tensor change = whole ? f.to(wide).mul(factor).round_().to(u.scalar_type()) : f;
  const at::Scalar times = whole ? at::Scalar(1) : at::Scalar(factor);
  return over_u ? u.add_(change, times) : u.add(change, times);
}

Tensor sum_rows(const Tensor& x, at::ScalarType dtype) {
  const std::int64_t width = x.size(-1), rows = row_count(x);
  Tensor sums;
  const bool done = with_kernels(x, dtype, x.scalar_type(), [&]<typename T, typename S>() {
    const Tensor dense = x.contiguous();
    const Tensor partial = at::zeros({chunk_count(rows), width}, x.options().dtype(dtype));
    split_chunks(x, rows, width, [&](std::int64_t begin, std::int64_t end, std::int64_t chunk) {
      row_kernels<T, S>().add_rows(dense.const_data_ptr<S>() + begin * width, end - begin, width,
                                   partial.mutable_data_ptr<T>() + chunk * width);
    });
    sums = sum_chunks<T>(partial);
  });
  return done ? sums : x.reshape({-1, width}).sum(0, false, dtype);
}

}  // namespace pareprop
