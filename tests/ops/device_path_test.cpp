#include "pareprop/ops/device_path.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/attention.h"
#include "pareprop/ops/compare.h"
#include "pareprop/ops/conv2d.h"
#include "pareprop/ops/device_arithmetic.h"
#include "pareprop/ops/kernels/philox_source.h"
#include "pareprop/ops/layer_norm.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/meta_kernels.h"
#include "pareprop/ops/mlp.h"
#include "pareprop/ops/pooled_norm.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/product.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/ops/table_products.h"
#include "pareprop/ops/tape_scopes.h"
#include "pareprop/ops/tied_table.h"
#include "pareprop/ops/token_map.h"
#include "tests/ops/gradcheck.h"
#include "tests/ops/host_reads.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

struct DeviceOp {
  const char* name;
  std::vector<std::vector<std::int64_t>> sizes;  // of its inputs, all of which want gradients
  Function run;
};

Tensor with_random(const Function& function, const Tensors& in) {
  RandomStream random(11);
  RandomScope scope(random);
  return function(in);
}

// A tensor of whole numbers on the device of `like`.
Tensor numbers(std::int64_t end, at::IntArrayRef sizes, const Tensor& like) {
  at::manual_seed(5);
  return at::randint(end, sizes, at::TensorOptions(at::kLong)).to(like.device());
}

Tensor mask_of(const Tensor& like, std::int64_t groups, std::int64_t queries, std::int64_t keys) {
  at::manual_seed(6);
  const Tensor drawn = at::randn({groups, queries, keys}, at::TensorOptions(at::kFloat));
  return drawn.gt(1.0).to(at::kFloat).mul(-100.0).to(like.device());
}

// For ops that are told their precision and run outside of any autocast.
Precision precision_of(const Tensor& x) {
  return compute_dtype(x) == at::kBFloat16 ? Precision::bf16 : Precision::fp32;
}

std::vector<DeviceOp> device_ops() {
  const auto whole = make_token_map({3, 0, 4, 1, 2}, 5), holes = make_token_map({4, -1, 0, 3}, 5);
  return {
      {"linear",
       {{4, 30, 24}, {16, 24}, {16}},
       [](const Tensors& in) { return linear(in[0], in[1], in[2]); }},
      {"layer norm",
       {{4, 30, 24}, {24}, {24}},
       [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }},
      {"mlp",
       {{4, 300, 16}, {48, 16}, {48}, {24, 48}, {24}},
       [](const Tensors& in) { return mlp(in[0], in[1], in[2], in[3], in[4]); }},
      // More than one part of its rows.
      {"large mlp",
       {{1, 1100, 8}, {4096, 8}, {4096}, {4, 4096}, {4}},
       [](const Tensors& in) { return mlp(in[0], in[1], in[2], in[3], in[4]); }},
      {"lean mlp",
       {{4, 300, 16}, {48, 16}, {48}, {24, 48}, {24}},
       [](const Tensors& in) {
         const LeanTapeScope lean(true);
         return mlp(in[0], in[1], in[2], in[3], in[4]);
       }},
      {"self-attention",
       {{3, 33, 3 * 4 * 16}},
       [](const Tensors& in) { return self_attention(in[0].to(compute_dtype(in[0])), 4); }},
      {"masked self-attention",
       {{4, 33, 3 * 4 * 16}},
       [](const Tensors& in) {
         return self_attention(in[0].to(compute_dtype(in[0])), 4,
                               {.mask = mask_of(in[0], 4, 1, 33)});
       }},
      {"windows, shifted",
       {{6, 49, 3 * 2 * 8}, {2, 49, 49}},
       [](const Tensors& in) {
         return self_attention(in[0].to(compute_dtype(in[0])), 2,
                               {.bias = in[1], .mask = mask_of(in[0], 3, 49, 49)});
       }},
      {"attention with dropout",
       {{3, 2, 20, 8}, {3, 2, 12, 8}, {3, 2, 12, 8}},
       [](const Tensors& in) {
         const auto dtype = compute_dtype(in[0]);
         return attention(in[0].to(dtype), in[1].to(dtype), in[2].to(dtype), {.dropout = 0.3});
       }},
      {"attention of maps",
       {{3, 2, 20, 8}, {3, 2, 12, 8}, {3, 2, 12, 8}, {2, 20, 12}, {3, 2, 20, 3}, {3, 2, 20, 4}},
       [](const Tensors& in) {
         const auto dtype = compute_dtype(in[0]);
         return attention(in[0].to(dtype), in[1].to(dtype), in[2].to(dtype),
                          {.bias = in[3],
                           .position_rows = in[4].to(dtype),
                           .position_columns = in[5].to(dtype)});
       }},
      {"pooled norm",
       {{9, 100, 12}, {9, 100, 12}, {24}, {24}},
       [](const Tensors& in) { return pooled_norm(in[0], in[1], in[2], in[3], 1e-5); }},
      {"table products",
       {{20, 12}, {3000, 12}, {3000}},
       [](const Tensors& in) {
         const Precision precision = precision_of(in[0]);
         const AutocastScope none(in[0].device().type(), {});
         return table_products(in[0], in[1], in[2], precision);
       }},
      {"table loss",
       {{20, 12}, {3000, 12}, {3000}},
       [](const Tensors& in) {
         const Precision precision = precision_of(in[0]);
         const AutocastScope none(in[0].device().type(), {});
         return table_loss(in[0], in[1], in[2], numbers(3000, {20}, in[0]), precision).loss;
       }},
      {"rows of a table",
       {{50, 12}},
       [](const Tensors& in) {
         return rows_of(in[0], numbers(50, {4, 9}, in[0]), 1).rows;
       }},
      {"tokens",
       {{3, 5, 7}},
       [=](const Tensors& in) { return rearrange_tokens(in[0], whole.to(in[0].device())); }},
      {"tokens with holes",
       {{3, 5, 7}},
       [=](const Tensors& in) { return rearrange_tokens(in[0], holes.to(in[0].device())); }},
      {"convolution",
       {{2, 9, 9, 6}, {6, 1, 3, 3}, {6}},
       [](const Tensors& in) {
         return conv2d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .groups = 6});
       }},
      {"dropout", {{3, 50, 7}}, [](const Tensors& in) { return dropout(in[0], 0.4); }},
      {"drop path", {{64, 5, 2}}, [](const Tensors& in) { return drop_path(in[0], 0.4); }},
  };
}

Tensors inputs_of(const DeviceOp& op, at::ScalarType dtype) {
  at::manual_seed(3);
  Tensors all;
  for (const auto& sizes : op.sizes) {
    all.push_back(at::randn(sizes, at::TensorOptions(dtype)).set_requires_grad(true));
  }
  return all;
}

Tensors run_op(const DeviceOp& op, const Tensors& in, bool device_path) {
  const DevicePathScope scope(device_path);
  return gradients_of(
      [&](const Tensors& t) {
        const Tensor y = with_random(op.run, t);
        return y.to(in[0].scalar_type());
      },
      in);
}

TEST(DevicePath, OpsGiveTheValuesAndGradientsOfTheirKernels) {
  for (const DeviceOp& op : device_ops()) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const Tensors in = inputs_of(op, dtype);
      EXPECT_LT(max_relative_error(run_op(op, in, false), run_op(op, in, true)),
                dtype == at::kFloat ? 5e-6 : 1e-13)
          << op.name << " " << dtype;
    }
  }
}

// Products of bf16 are rounded at other places: both ways are measured by float32.
TEST(DevicePath, OpsAreAsCloseToFloat32InBfloat16AsTheirKernels) {
  for (const DeviceOp& op : device_ops()) {
    const Tensors in = inputs_of(op, at::kFloat);
    const Tensors expected = run_op(op, in, false);
    const AutocastScope autocast(c10::DeviceType::CPU, {true, at::kBFloat16});
    const double kernels = max_relative_error(expected, run_op(op, in, false));
    const double composed = max_relative_error(expected, run_op(op, in, true));
    EXPECT_LT(composed, 2e-2) << op.name;
    EXPECT_LT(composed, 1.5 * kernels + 2e-3) << op.name;
  }
}

TEST(DevicePath, HasTheSameBitsWithAndWithoutGraphAndWhenItUsesUpItsTape) {
  for (const DeviceOp& op : device_ops()) {
    const Tensors in = inputs_of(op, at::kFloat);
    const Tensors expected = run_op(op, in, true);
    {
      // Of tensors that nobody else holds.
      DeviceOp of_copies = op;
      of_copies.run = [&](const Tensors& t) {
        Tensors copies;
        for (const Tensor& x : t) copies.push_back(x.mul(1.0));
        return op.run(copies);
      };
      const ConsumeScope consume(true);
      EXPECT_TRUE(bit_identical(expected, run_op(of_copies, in, true))) << op.name;
    }
    const DevicePathScope scope;
    const c10::AutoGradMode no_graph(false);
    EXPECT_TRUE(bit_identical({expected.back()}, {with_random(op.run, in)})) << op.name;
  }
}

TEST(DevicePath, OpsReadNothingOnTheHost) {
  for (const DeviceOp& op : device_ops()) {
    const Tensors in = inputs_of(op, at::kFloat);
    const testing::HostReads reads;
    run_op(op, in, true);
    EXPECT_EQ(reads.count(), 0) << op.name;
  }
}

// What a dry step of an accelerator runs: the same shapes, and nothing computed.
TEST(DevicePath, KnowsItsShapesOnTheMetaDevice) {
  install_meta_kernels();
  for (const DeviceOp& op : device_ops()) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const Tensors in = inputs_of(op, at::kFloat);
      const DevicePathScope scope;
      const auto gradients = [&](const Tensors& given) {
        const auto device = given[0].device().type();
        const AutocastScope autocast(device, {dtype == at::kBFloat16, at::kBFloat16});
        const Tensor y = with_random(op.run, given);
        y.backward(at::empty_like(y));
        Tensors all{y};
        for (const Tensor& t : given) all.push_back(t.grad());
        return all;
      };
      Tensors meta;
      for (const Tensor& t : in) meta.push_back(t.detach().to(at::kMeta).set_requires_grad(true));
      const Tensors expected = gradients(in), got = gradients(meta);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(got[i].defined()) << op.name << " " << i;
        EXPECT_TRUE(got[i].is_meta()) << op.name << " " << i;
        EXPECT_EQ(got[i].sizes(), expected[i].sizes()) << op.name << " " << i;
        EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << op.name << " " << i;
      }
    }
  }
}

TEST(DevicePath, MasksHaveTheBitsOfTheCpu) {
  for (const std::int64_t count : {0, 1, 3, 4, 5, 1023, 100003}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const double drop : {0.001, 0.1, 0.5, 0.97}) {
        RandomStream host(random_key({7, 1})), device(random_key({7, 1}));
        for (int draw = 0; draw < 3; ++draw) {
          const Tensor expected = host.keep_mask({count}, drop, at::TensorOptions(dtype));
          const DevicePathScope scope;
          EXPECT_TRUE(device.keep_mask({count}, drop, at::TensorOptions(dtype)).equal(expected))
              << count << " " << dtype << " " << drop << " " << draw;
        }
      }
    }
  }
}

TEST(DevicePath, MasksAreThoseOfLateDrawsToo) {
  const MaskDraw late{.key = 0xfedcba9876543210, .draw = 0x1122334455667788, .drop = 0.5};
  const Tensor expected = late.mask({9, 11}, at::TensorOptions(at::kFloat));
  const DevicePathScope scope;
  EXPECT_TRUE(late.mask({9, 11}, at::TensorOptions(at::kFloat)).equal(expected));
}

TEST(DevicePath, MasksAreThoseOfPartsOfABatchToo) {
  for (const BatchPart part : {BatchPart{4, 4}, BatchPart{3, 7}, BatchPart{1000, 1}}) {
    const MaskDraw draw{.key = 11, .draw = 2, .drop = 0.5, .part = part};
    const Tensor expected = draw.mask({part.samples, 5}, at::TensorOptions(at::kFloat));
    const DevicePathScope scope;
    EXPECT_TRUE(draw.mask({part.samples, 5}, at::TensorOptions(at::kFloat)).equal(expected))
        << part.first;
  }
}

namespace on_the_cpu {
PAREPROP_PHILOX_SOURCE
}

// The text that is compiled for GPUs is the same code.
TEST(DevicePath, TheKernelForGpusDrawsTheMasksOfTheCpu) {
  EXPECT_NE(std::string(kPhiloxText).find(kPhiloxName), std::string::npos);
  const MaskDraw draw{.key = 0xfedcba9876543210, .draw = 0x1122334455667788, .drop = 0.3};
  const auto key = static_cast<std::int64_t>(draw.key),
             number = static_cast<std::int64_t>(draw.draw);
  std::vector<float> expected(10007);
  draw.fill(0, 10007, expected.data());
  for (std::int64_t i = 0; i < 10007; ++i) {
    const bool kept = expected[static_cast<std::size_t>(i)] != 0.0F;
    EXPECT_EQ(on_the_cpu::philox_at_least<std::int64_t>(i, key, number, draw.threshold()), kept);
    EXPECT_EQ(on_the_cpu::philox_at_least<int>(static_cast<int>(i), key, number, draw.threshold()),
              kept);
  }
}

TEST(DevicePath, AttentionKeepsNoProbabilities) {
  memory::install_caching_allocator();
  const Tensor qkv =
      at::randn({4, 256, 3 * 2 * 8}, at::TensorOptions(at::kFloat)).set_requires_grad(true);
  const auto kept = [&](const AttentionTerms& terms) {
    RandomStream random(1);
    RandomScope scope(random);
    const std::int64_t before = memory::usage().total_live;
    const Tensor y = self_attention(qkv, 2, terms);
    return memory::usage().total_live - before;
  };
  const std::int64_t probabilities = 4 * 2 * 256 * 256 * 4;
  const DevicePathScope scope;
  EXPECT_LT(kept({}), probabilities / 8);
  EXPECT_LT(kept({.dropout = 0.1}), probabilities / 8);
}

// A device's product of bf16 that leaves its sums in float32: the CPU has none, and is lent one.
Tensor lent_product(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return a.to(type).mm(b.to(type)).add_(1.0);
}

TEST(DevicePath, WeightGradientsOfBfloat16AreNotRoundedWhereTheDeviceCan) {
  at::manual_seed(8);
  const Tensor a = at::randn({300, 8}).to(at::kBFloat16), b = at::randn({300, 6}).to(at::kBFloat16);
  const Tensor exact = a.to(at::kFloat).t().mm(b.to(at::kFloat));
  const DevicePathScope scope;
  EXPECT_LT(max_relative_error({exact}, {transposed_product(a, b, at::kFloat)}), 1e-2);
  torch::Library lent(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  lent.impl("mm.dtype", &lent_product);
  EXPECT_LT(max_relative_error({exact.add(1.0)}, {transposed_product(a, b, at::kFloat)}), 1e-6);
}

TEST(DeviceArithmetic, SetsWhatTorchHasForTheProcess) {
  at::Context& context = at::globalContext();
  set_device_arithmetic({.tf32 = true});
  EXPECT_TRUE(context.allowTF32CuBLAS());
  EXPECT_TRUE(context.allowTF32CuDNN());
  EXPECT_FALSE(context.allowFP16BF16ReductionMathSDP());
  EXPECT_NE(context.allowBF16ReductionCuBLAS(),
            at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
  set_device_arithmetic({.tf32 = false});
  EXPECT_FALSE(context.allowTF32CuBLAS());
  EXPECT_FALSE(context.allowTF32CuDNN());
}

}  // namespace
}  // namespace pareprop
