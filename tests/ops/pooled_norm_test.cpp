#include "pareprop/ops/pooled_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/compare.h"
#include "tests/ops/gradcheck.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensors streams(std::int64_t batch, std::int64_t tokens, std::int64_t width, at::ScalarType dtype) {
  const auto options = at::TensorOptions(dtype);
  Tensors all{at::randn({batch, tokens, width}, options).add_(2),
              at::randn({batch, tokens, width}, options), at::randn({2 * width}, options),
              at::randn({2 * width}, options)};
  for (Tensor& t : all) t.set_requires_grad(true);
  return all;
}

Tensor pooled_streams(const Tensors& in) { return pooled_norm(in[0], in[1], in[2], in[3], 1e-5); }
Tensor of_layer_norm(const Tensors& in) {
  return at::layer_norm(at::cat({in[0], in[1]}, -1), in[2].sizes(), in[2], in[3], 1e-5, false)
      .mean(1);
}

TEST(PooledNorm, PassesGradcheck) {
  at::manual_seed(1);
  EXPECT_LT(gradient_error(pooled_streams, streams(3, 4, 5, at::kDouble)), 1e-7);
}

// Samples that fill several parts, one, less than one, and more tokens than a part has rows.
TEST(PooledNorm, EqualsItsComposition) {
  at::manual_seed(2);
  for (const auto& [batch, tokens] : {std::pair{9, 100}, {5, 128}, {2, 3}, {3, 700}, {1, 1}}) {
    const Tensors wide = streams(batch, tokens, 12, at::kDouble);
    const Tensors narrow = streams(batch, tokens, 12, at::kFloat);
    const auto in_doubles = [](const Tensors& in) {
      Tensors same;
      for (const Tensor& t : in) same.push_back(t.to(at::kDouble));
      return of_layer_norm(same).to(at::kFloat);
    };
    EXPECT_LT(
        max_relative_error(gradients_of(of_layer_norm, wide), gradients_of(pooled_streams, wide)),
        1e-12)
        << batch << " x " << tokens;
    EXPECT_LT(
        max_relative_error(gradients_of(in_doubles, narrow), gradients_of(pooled_streams, narrow)),
        5e-6)
        << batch << " x " << tokens;
  }
}

TEST(PooledNorm, HasTheSameBitsOnAnyNumberOfThreads) {
  at::manual_seed(3);
  const Tensors in = streams(11, 100, 48, at::kFloat);
  const auto expected = gradients_of(pooled_streams, in);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    EXPECT_TRUE(bit_identical(expected, gradients_of(pooled_streams, in))) << count;
  }
  at::set_num_threads(threads);
  c10::AutoGradMode no_graph(false);
  EXPECT_TRUE(bit_identical({expected.back()}, {pooled_streams(in)}));
}

TEST(PooledNorm, TakesLittleBesideItsGradients) {
  memory::install_caching_allocator();
  const Tensors in = streams(64, 128, 32, at::kFloat);
  const auto stream = static_cast<std::int64_t>(in[0].nbytes());
  memory::reset_peaks();
  const std::int64_t before = memory::usage().total_live;
  pooled_streams(in).sum().backward();
  EXPECT_LT(memory::usage().total_peak - before, 3 * stream);  // two of them are the gradients
}

}  // namespace
}  // namespace pareprop
