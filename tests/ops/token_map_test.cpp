#include "pareprop/ops/token_map.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "pareprop/ops/compare.h"

namespace pareprop {
namespace {

// Tokens 4, none, 0, 3 of five; 1 and 2 are left out.
TokenMap some_map() { return make_token_map({4, -1, 0, 3}, 5); }

// The same as a product with a matrix of ones and zeros, differentiated by torch.
at::Tensor by_matrix(const at::Tensor& x) {
  const at::Tensor places = at::zeros({4, 5}, x.options().requires_grad(false));
  for (const auto& [to, from] : {std::pair{0, 4}, {2, 0}, {3, 3}}) places[to][from].fill_(1);
  return at::matmul(places, x);
}

TEST(TokenMap, IsAProductWithAMatrixOfOnesAndZerosForwardAndBackward) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = at::randn({3, 5, 7}, dtype);
    const at::Tensor dy = at::randn({3, 4, 7}, dtype);
    std::vector<at::Tensor> results[2];
    for (const bool mapped : {false, true}) {
      const at::Tensor leaf = x.clone().requires_grad_();
      const at::Tensor y = mapped ? rearrange_tokens(leaf, some_map()) : by_matrix(leaf);
      y.backward(dy);
      results[mapped ? 1 : 0] = {y.detach(), leaf.grad()};
    }
    EXPECT_TRUE(bit_identical(results[0], results[1])) << dtype;
  }
}

TEST(TokenMap, TakesStridedInputAndManyRows) {
  std::vector<std::int64_t> backwards;
  for (std::int64_t i = 999; i >= 0; --i) backwards.push_back(i);
  const TokenMap map = make_token_map(backwards, 1000);
  const at::Tensor x = at::randn({24, 1000, 5}).transpose(0, 2).contiguous().transpose(0, 2);
  EXPECT_TRUE(rearrange_tokens(x, map).equal(x.flip({1})));
}

TEST(TokenMap, ReversedUndoesIt) {
  const at::Tensor x = at::randn({2, 5, 3});
  const at::Tensor back = rearrange_tokens(rearrange_tokens(x, some_map()), some_map().reversed());
  const at::Tensor expected = x.clone();
  expected.slice(1, 1, 3).zero_();
  EXPECT_TRUE(back.equal(expected));
}

TEST(TokenMap, KnowsShapesOnTheMetaDevice) {
  const at::Tensor x = at::empty({2, 5, 3}, at::kMeta).requires_grad_();
  const at::Tensor y = rearrange_tokens(x, some_map().to(at::kMeta));
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 4, 3}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(TokenMap, BadMapsAndInputsAreRefused) {
  EXPECT_THROW(make_token_map({0, 0}, 3), std::invalid_argument);
  EXPECT_THROW(make_token_map({3}, 3), std::invalid_argument);
  EXPECT_THROW(make_token_map({-2}, 3), std::invalid_argument);
  EXPECT_THROW(rearrange_tokens(at::zeros({2, 4, 3}), some_map()), std::invalid_argument);
  EXPECT_THROW(rearrange_tokens(at::zeros({5, 3}), some_map()), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop
