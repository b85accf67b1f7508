#include "pareprop/ops/tape_scopes.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/attention.h"
#include "pareprop/ops/kernels/gemm.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/mlp.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/random_stream.h"
#include "tests/ops/gradcheck.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

Tensor leaf(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::TensorOptions(type)).div_(2).set_requires_grad(true);
}

struct Op {
  std::string name;
  Function run;
  Tensors inputs;
  std::int64_t leaves_out;  // values of the type of products that a lean tape has not
  std::int64_t weights;     // values of weights, which it has not where they were converted
};

// More rows than an Mlp works on at a time, and not a multiple.
constexpr std::int64_t kRows = 2 * 600, kWidth = 8, kHidden = 64, kKeys = 600;

std::vector<Op> ops(at::ScalarType type) {
  at::manual_seed(3);
  const Tensor x = leaf({2, kKeys, kWidth}, type), b = leaf({kWidth}, type);
  return {
      {"mlp",
       [](const Tensors& t) { return mlp(t[0], t[1], t[2], t[3], t[4]); },
       {x, leaf({kHidden, kWidth}, type), leaf({kHidden}, type), leaf({kWidth, kHidden}, type), b},
       kRows * kHidden,
       2 * kHidden * kWidth},
      {"linear",
       [](const Tensors& t) { return linear(t[0], t[1], t[2]); },
       {x, leaf({kWidth, kWidth}, type), b},
       0,
       kWidth * kWidth},
      {"attention",
       [](const Tensors& t) {
         RandomStream random(7);
         const RandomScope scope(random);
         const Tensor qkv = t[0].to(compute_dtype(t[0]));
         return self_attention(qkv, 1, {.dropout = 0.1});
       },
       {leaf({2, kKeys, 3 * 48}, type)},
       kRows * kKeys,
       0},
  };
}

struct Kind {
  at::ScalarType weights;
  bool bf16;
};

void for_each_kind(const std::function<void(const Op&, at::ScalarType type, bool converts)>& test) {
  for (const auto& [type, bf16] :
       {Kind{at::kFloat, false}, Kind{at::kDouble, false}, Kind{at::kFloat, true}}) {
    for (const Op& op : ops(type)) {
      SCOPED_TRACE(op.name + (bf16 ? ", bf16" : type == at::kFloat ? ", float" : ", double"));
      const AutocastScope autocast(c10::DeviceType::CPU, {bf16, at::kBFloat16});
      test(op, bf16 ? at::kBFloat16 : type, bf16);
    }
  }
}

TEST(LeanTape, GivesTheSameBits) {
  for_each_kind([](const Op& op, at::ScalarType, bool) {
    const Tensors expected = gradients_of(op.run, op.inputs);
    const LeanTapeScope lean(true);
    EXPECT_TRUE(same_bits(gradients_of(op.run, op.inputs), expected));
    const ConsumeScope consume(true);
    EXPECT_TRUE(same_bits(gradients_of(op.run, op.inputs), expected)) << "used up";
  });
}

TEST(LeanTape, CanBeUsedTwice) {
  for_each_kind([](const Op& op, at::ScalarType, bool) {
    const LeanTapeScope lean(true);
    const Tensor y = op.run(op.inputs);
    const Tensor dy = at::randn(y.sizes(), y.options());
    const auto first = torch::autograd::grad({y}, op.inputs, {dy}, /*retain_graph=*/true);
    const auto second = torch::autograd::grad({y}, op.inputs, {dy});
    EXPECT_TRUE(same_bits(first, second));
  });
}

TEST(LeanTape, LeavesOutWhatIsComputedAgain) {
  memory::install_caching_allocator();
  for_each_kind([](const Op& op, at::ScalarType type, bool converts) {
    if (op.name == "attention" && converts && !has_pair_products()) return;  // in float32 there
    const auto kept = [&](bool lean_now) {
      const LeanTapeScope lean(lean_now);
      const std::int64_t before = memory::usage().activation_live;
      const Tensor y = op.run(op.inputs);
      return memory::usage().activation_live - before;
    };
    kept(false);
    const std::int64_t values = op.leaves_out + (converts ? op.weights : 0);
    const auto expected =
        static_cast<double>(values * static_cast<std::int64_t>(elementSize(type)));
    EXPECT_NEAR(static_cast<double>(kept(false) - kept(true)), expected, 0.1 * expected + 128);
  });
}

TEST(LeanTape, ScopesNest) {
  EXPECT_FALSE(tape_is_lean());
  {
    const LeanTapeScope outer(true);
    {
      const LeanTapeScope inner(false);
      EXPECT_FALSE(tape_is_lean());
    }
    EXPECT_TRUE(tape_is_lean());
  }
  EXPECT_FALSE(tape_is_lean());
}

}  // namespace
}  // namespace pareprop
