#include "pareprop/ops/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/compare.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/ops/tape_scopes.h"
#include "tests/ops/gradcheck.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensor normal(at::IntArrayRef sizes, at::ScalarType dtype, bool gradient = true) {
  return at::randn(sizes, at::TensorOptions(dtype)).set_requires_grad(gradient);
}

// Every kind of term at once: bias, mask (by sample and query), positions on a 2 x keys/2 map.
struct Case {
  std::int64_t batch = 4, heads = 2, queries = 5, keys = 6, head = 3;
  double dropout = 0.0;
  bool terms = true;

  Tensors inputs(at::ScalarType dtype) const {
    Tensors all{normal({batch, heads, queries, head}, dtype),
                normal({batch, heads, keys, head}, dtype),
                normal({batch, heads, keys, head}, dtype)};
    if (!terms) return all;
    all.push_back(normal({heads, queries, keys}, dtype));
    const Tensor drawn = at::randn({2, queries, keys}, at::TensorOptions(dtype));
    all.push_back(at::where(drawn.gt(1.0), at::full({}, -100.0, drawn.options()),
                            at::zeros({}, drawn.options())));
    all.push_back(normal({batch, heads, queries, 2}, dtype));
    all.push_back(normal({batch, heads, queries, keys / 2}, dtype));
    return all;
  }

  auto run(Tensor (*function)(const Tensor&, const Tensor&, const Tensor&,
                              const AttentionTerms&)) const {
    return [*this, function](const Tensors& in) {
      RandomStream random(7);
      RandomScope scope(random);
      AttentionTerms given{.dropout = dropout};
      if (terms) {
        given = {.bias = in[3],
                 .mask = in[4],
                 .position_rows = in[5],
                 .position_columns = in[6],
                 .dropout = dropout};
      }
      return function(in[0], in[1], in[2], given);
    };
  }
};

// Keys so many that probabilities are computed again instead of kept.
const Case kManyKeys{.batch = 2, .queries = 7, .keys = 40, .head = 2};
const Case kManyKeysDropped{.batch = 2, .queries = 7, .keys = 40, .head = 2, .dropout = 0.3};
// Scores larger than a core's cache: worked on in parts.
const Case kLong{.batch = 2, .heads = 2, .queries = 301, .keys = 502, .head = 40, .dropout = 0.2};

// Keys and queries in several tiles, the last ones smaller, and more heads than are summed up at
// the same time.
const Case kTiles{.batch = 4, .heads = 3, .queries = 301, .keys = 602, .head = 8, .dropout = 0.2};
const Case kPlainTiles{
    .batch = 1, .heads = 2, .queries = 1030, .keys = 1030, .head = 64, .terms = false};

TEST(Attention, PassesGradcheck) {
  at::manual_seed(1);
  for (const Case& c :
       {Case{}, Case{.dropout = 0.3}, Case{.terms = false}, kManyKeys, kManyKeysDropped}) {
    EXPECT_LT(gradient_error(c.run(&attention), c.inputs(at::kDouble)), 1e-7);
  }
  EXPECT_FALSE(keeps_probabilities(kManyKeys.keys, kManyKeys.head));
  EXPECT_TRUE(keeps_probabilities(Case{}.keys, Case{}.head));
}

TEST(Attention, EqualsItsComposition) {
  at::manual_seed(2);
  for (const Case& c :
       {Case{}, Case{.batch = 6, .queries = 49, .keys = 50, .head = 32, .dropout = 0.1},
        Case{.queries = 196, .keys = 196, .head = 64, .terms = false}, kManyKeysDropped, kLong,
        kTiles, kPlainTiles}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const Tensors inputs = c.inputs(dtype);
      const auto expected = gradients_of(c.run(&composed_attention), inputs);
      const auto got = gradients_of(c.run(&attention), inputs);
      EXPECT_LT(max_relative_error(expected, got), dtype == at::kFloat ? 3e-6 : 1e-14);
    }
  }
}

// What the composition gives in float32 for the same rounded inputs is what both are measured by.
TEST(Attention, Bfloat16IsAsCloseToFloat32AsItsComposition) {
  at::manual_seed(5);
  for (const Case& c :
       {Case{.head = 4}, Case{.batch = 6, .queries = 49, .keys = 50, .head = 32, .dropout = 0.1},
        Case{.queries = 197, .keys = 197, .head = 64, .terms = false},
        Case{.queries = 50, .keys = 10, .head = 96}, kManyKeysDropped, kLong, kTiles,
        kPlainTiles}) {
    Tensors narrow, wide;
    for (const Tensor& t : c.inputs(at::kFloat)) {
      const Tensor rounded = t.detach().to(at::kBFloat16);
      narrow.push_back(rounded.clone().set_requires_grad(t.requires_grad()));
      wide.push_back(rounded.to(at::kFloat).set_requires_grad(t.requires_grad()));
    }
    const auto run = [&](auto function, const Tensors& inputs) {
      return gradients_of([&](const Tensors& in) { return c.run(function)(in).to(at::kFloat); },
                          inputs);
    };
    const auto expected = run(&composed_attention, wide);
    const double composed = max_relative_error(expected, run(&composed_attention, narrow));
    const double ours = max_relative_error(expected, run(&attention, narrow));
    EXPECT_LT(ours, 1e-2) << c.keys;
    EXPECT_LT(ours, 1.2 * composed) << c.keys;
  }
}

TEST(Attention, HasTheSameBitsWithAndWithoutGraphAndOnAnyNumberOfThreads) {
  at::manual_seed(3);
  for (const Case& c : {Case{.batch = 37, .queries = 49, .keys = 50, .head = 16, .dropout = 0.1},
                        kManyKeysDropped, kLong, kTiles, kPlainTiles}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const Tensors inputs = c.inputs(dtype);
      const auto expected = gradients_of(c.run(&attention), inputs);
      const int threads = at::get_num_threads();
      for (const int count : {1, 2, 3}) {
        at::set_num_threads(count);
        EXPECT_TRUE(bit_identical(expected, gradients_of(c.run(&attention), inputs)))
            << count << " threads, " << c.keys << " keys, " << dtype;
      }
      at::set_num_threads(threads);
      c10::AutoGradMode no_graph(false);
      EXPECT_TRUE(bit_identical({expected.back()}, {c.run(&attention)(inputs)}));
    }
  }
}

// Texts are padded: whole tiles of keys have a mask of minus infinity, the first ones too.
TEST(Attention, TilesMayBeMaskedAltogether) {
  at::manual_seed(6);
  const std::int64_t keys = 900;
  Tensors inputs{normal({2, 2, 300, 4}, at::kDouble), normal({2, 2, keys, 4}, at::kDouble),
                 normal({2, 2, keys, 4}, at::kDouble)};
  Tensor mask = at::zeros({2, 1, keys}, at::kDouble);
  mask.select(0, 0).narrow(1, 350, keys - 350).fill_(-std::numeric_limits<double>::infinity());
  mask.select(0, 1).narrow(1, 0, 600).fill_(-std::numeric_limits<double>::infinity());
  const auto run = [&](auto function) {
    return gradients_of(
        [&](const Tensors& in) { return function(in[0], in[1], in[2], {.mask = mask}); }, inputs);
  };
  EXPECT_FALSE(keeps_probabilities(keys, 4));
  const auto expected = run(&composed_attention);
  EXPECT_LT(max_relative_error(expected, run(&attention)), 1e-14);
  EXPECT_TRUE(expected.front().isfinite().all().item<bool>());
}

// What is kept, and what a backward pass needs at its highest, in bytes for each token.
TEST(Attention, MemoryIsLinearInTheTokens) {
  memory::install_caching_allocator();
  const auto bytes_per_token = [](std::int64_t tokens, at::ScalarType dtype) {
    const Tensor qkv = normal({1, tokens, 3 * 16}, dtype);
    const std::int64_t before = memory::usage().total_live;
    memory::reset_peaks();
    const Tensor made = self_attention(qkv, 2);
    const double kept = static_cast<double>(memory::usage().total_live - before);
    made.backward(at::ones_like(made));
    const double peak = static_cast<double>(memory::usage().total_peak - before);
    const auto count = static_cast<double>(tokens);
    return std::pair(kept / count, peak / count);
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto [kept, peak] = bytes_per_token(1024, dtype);
    const auto [kept_long, peak_long] = bytes_per_token(4096, dtype);
    EXPECT_LT(kept_long, 1.05 * kept);
    EXPECT_LT(peak_long, 1.05 * peak);
  }
}

TEST(SelfAttention, IsAttentionOfThePartsOfQkv) {
  at::manual_seed(4);
  const Tensor qkv = normal({3, 11, 3 * 4 * 5}, at::kDouble),
               bias = normal({4, 11, 11}, at::kDouble);
  const Tensor mask = at::randn({3, 1, 11}, at::TensorOptions(at::kDouble));
  const auto packed = gradients_of(
      [&](const Tensors& in) { return self_attention(in[0], 4, {.bias = in[1], .mask = mask}); },
      {qkv, bias});
  const auto split = gradients_of(
      [&](const Tensors& in) {
        const auto parts = in[0].view({3, 11, 3, 4, 5}).permute({2, 0, 3, 1, 4}).unbind(0);
        return composed_attention(parts[0], parts[1], parts[2], {.bias = in[1], .mask = mask});
      },
      {qkv, bias});
  EXPECT_LT(max_relative_error(split, packed), 1e-14);
}

TEST(SelfAttention, GivesNoGradientToAFrozenBias) {
  const Tensor qkv = normal({2, 4, 3 * 8}, at::kFloat), bias = normal({2, 4, 4}, at::kFloat, false);
  self_attention(qkv, 2, {.bias = bias}).sum().backward();
  EXPECT_TRUE(qkv.grad().defined());
  EXPECT_FALSE(bias.grad().defined());
}

Tensor packed(const Tensors& in) { return self_attention(in[0].mul(in[1]), 2); }

// Its backward needs the values that attention saved as well.
Tensor packed_and_squared(const Tensors& in) {
  const Tensor qkv = in[0].mul(in[1]);
  return self_attention(qkv, 2).add(qkv.mul(qkv).narrow(2, 0, qkv.size(2) / 3));
}

TEST(Attention, WritesOverItsInputsOnlyWhereNobodyElseNeedsThem) {
  at::manual_seed(11);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t tokens : {40, 601}) {  // whole rows of scores, and tiles
      const Tensors in{normal({3, tokens, 24}, dtype), normal({24}, dtype)};
      for (const auto& function : {packed, packed_and_squared}) {
        const Tensors kept = gradients_of(function, in);
        const ConsumeScope consume(true);
        EXPECT_TRUE(same_bits(gradients_of(function, in), kept));
      }
    }
  }
}

}  // namespace
}  // namespace pareprop
