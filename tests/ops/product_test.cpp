#include "pareprop/ops/product.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "pareprop/ops/compare.h"
#include "pareprop/ops/kernels/gemm.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/sum_order.h"

namespace pareprop {
namespace {

at::Tensor narrow(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }
at::Tensor wide(const at::Tensor& t) { return t.to(at::kDouble); }

// bf16 has 8 significant bits: one rounding of the exact result is at most 2^-8 away.
void expect_rounded_once(const at::Tensor& exact, const at::Tensor& got) {
  ASSERT_EQ(got.scalar_type(), at::kBFloat16);
  const double error = wide(got).sub(exact).abs().div(exact.abs().add(1e-3)).max().item<double>();
  EXPECT_LE(error, 1.0 / 256 + 1e-5);
}

TEST(Product, OfBf16IsRoundedOnceWhateverTheCpuHas) {
  at::manual_seed(1);
  const auto a = narrow({37, 96}), b = narrow({96, 41}), bias = narrow({41});
  expect_rounded_once(at::mm(wide(a), wide(b)), product(a, b, at::kBFloat16));
  expect_rounded_once(at::linear(wide(a), wide(b).t(), wide(bias)), affine(a, b.t(), bias));
  const auto sums = product(a, b, at::kFloat);
  EXPECT_EQ(sums.scalar_type(), at::kFloat);
}

TEST(Product, TransposedIsTheSumOfOuterProducts) {
  at::manual_seed(3);
  struct Shape {
    std::int64_t rows, m, n;
  };
  // Blocks of it that are full, and ends of them: odd rows, few columns, several parts of the rows.
  for (const auto& [rows, m, n] :
       {Shape{1, 3, 5}, Shape{37, 96, 41}, Shape{784, 192, 200}, Shape{2051, 65, 130}}) {
    const auto a = narrow({rows, m}), b = narrow({rows, n});
    const auto got = transposed_product(a, b, at::kFloat);
    ASSERT_EQ(got.scalar_type(), at::kFloat);
    const double limit = has_pair_products() ? 1e-6 : 4e-3;
    EXPECT_LT(max_relative_error({at::mm(wide(a).t(), wide(b))}, {got}), limit) << rows;
    const int threads = at::get_num_threads();
    for (const int count : {1, 3}) {
      at::set_num_threads(count);
      EXPECT_TRUE(!has_pair_products() || transposed_product(a, b, at::kFloat).equal(got)) << rows;
    }
    at::set_num_threads(threads);
  }
  EXPECT_EQ(
      transposed_product(narrow({0, 3}), narrow({0, 2}), at::kFloat).abs().sum().item<float>(),
      0.0F);
}

TEST(Product, TransposedIsAddedToASum) {
  at::manual_seed(4);
  for (const auto type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const auto sum_type = type == at::kBFloat16 ? at::kFloat : type;
    for (const std::int64_t rows : {0, 1, 37, 1030}) {
      const auto a = at::randn({rows, 65}, at::kDouble).to(type);
      const auto b = at::randn({rows, 130}, at::kDouble).to(type);
      const auto before = at::randn({65, 130}, at::kDouble).to(sum_type);
      const auto sum = before.clone();
      const auto got = transposed_product(a, b, sum_type, sum);
      EXPECT_TRUE(got.is_same(sum)) << "another tensor";
      const auto exact = at::mm(a.to(at::kDouble).t(), b.to(at::kDouble)).add(before);
      const bool rounds = type == at::kBFloat16 && !has_pair_products();
      const double limit = type == at::kDouble ? 1e-14 : rounds ? 4e-3 : 1e-6;
      EXPECT_LT(max_relative_error({exact}, {got.to(at::kDouble)}), limit) << type << ", " << rows;
    }
  }
}

TEST(Product, WidensOnlyWhereTheCpuHasNoBf16) {
  EXPECT_FALSE(widens_bf16(at::randn({2})));
#if defined(__x86_64__)
  const bool has =
      at::get_cpu_capability().starts_with("AVX512") && __builtin_cpu_supports("avx512bf16") != 0;
  EXPECT_EQ(widens_bf16(narrow({2})), !has);
#endif
}

TEST(Product, HasTheSameBitsOnAnyNumberOfThreadsAndAtAnyAddress) {
  ASSERT_TRUE(fix_order_of_sums());  // where it has to be, test programs have MKL_CBWR
  at::manual_seed(6);
  const at::Tensor a = at::randn({64, 6272}), b = at::randn({6272, 96});
  const at::Tensor expected = product(a, b, at::kFloat);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    for (const std::int64_t offset : {0, 1, 5}) {
      const at::Tensor moved = at::empty({a.numel() + offset}).narrow(0, offset, a.numel());
      EXPECT_TRUE(product(moved.view_as(a).copy_(a), b, at::kFloat).equal(expected)) << count;
    }
  }
  at::set_num_threads(threads);
}

TEST(Product, BatchedTakesTheTypeOfAutocastAndGivesGradients) {
  at::manual_seed(2);
  const auto a = at::randn({3, 5, 8}).requires_grad_(true), b = at::randn({3, 8, 7});
  EXPECT_TRUE(batched_product(a, b).equal(at::bmm(a, b)));
  AutocastScope scope(c10::DeviceType::CPU, {true, at::kBFloat16});
  const auto y = batched_product(a, b);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.to(at::kFloat).sum().backward();
  EXPECT_LT(max_relative_error({b.sum(2).unsqueeze(1).expand({3, 5, 8})}, {a.grad()}), 1e-2);
}

}  // namespace
}  // namespace pareprop
