#include "pareprop/ops/meta_device.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/meta_meter.h"
#include "pareprop/ops/meta_kernels.h"

namespace pareprop {
namespace {

TEST(MetaDeviceScope, IsForTensorsThatNameNoDevice) {
  {
    const MetaDeviceScope scope;
    EXPECT_TRUE(at::zeros({2}).is_meta());
    EXPECT_TRUE(at::zeros({2}, at::kCPU).is_cpu());
    const MetaDeviceScope inner;
    EXPECT_TRUE(at::ones({2}).is_meta());
  }
  EXPECT_TRUE(at::zeros({2}).is_cpu());
}

// Shapes and dtypes of all gradients are those of the CPU, though torch has no meta kernel for
// some.
TEST(MetaKernels, ModulesOfTorchHaveTheShapesOfTheCpu) {
  install_meta_kernels();
  namespace nn = torch::nn;
  const auto made = [] {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8),
                          nn::LayerNorm(nn::LayerNormOptions({6})), nn::Linear(6, 5));
  };
  const nn::Sequential cpu = made();
  const nn::Sequential meta = [&] {
    const MetaDeviceScope scope;
    return made();
  }();
  const auto gradients = [](const nn::Sequential& net, at::Device device) {
    at::Tensor x = at::ones({2, 3, 6, 6}, device).requires_grad_(true);
    nn::Sequential runs = net;
    const at::Tensor y = runs->forward(x);
    y.sum().backward();
    std::vector<at::Tensor> all{y, x.grad()};
    for (const at::Tensor& weight : net->parameters()) all.push_back(weight.grad());
    return all;
  };
  const auto expected = gradients(cpu, at::kCPU), got = gradients(meta, at::kMeta);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].is_meta()) << i;
    EXPECT_EQ(got[i].sizes(), expected[i].sizes()) << i;
    EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << i;
  }
}

// What attention leaves behind for its gradient, and the shapes of its gradients.
TEST(MetaKernels, AttentionKeepsWhatItKeepsOnTheCpu) {
  memory::install_caching_allocator();
  memory::install_meta_meter();
  install_meta_kernels();
  const auto kept = [](at::Device device, const std::optional<at::Tensor>& mask, double dropout) {
    const auto counted = device.is_cpu() ? memory::Counted::cpu : memory::Counted::meta;
    const at::Tensor q = at::ones({2, 3, 40, 8}, device).requires_grad_(true);
    const std::optional<at::Tensor> here = mask ? std::optional(mask->to(device)) : std::nullopt;
    const std::int64_t before = memory::usage(counted).total_live;
    const at::Tensor y = at::scaled_dot_product_attention(q, q, q, here, dropout);
    const std::int64_t after = memory::usage(counted).total_live;
    y.sum().backward();
    EXPECT_EQ(q.grad().sizes(), q.sizes());
    EXPECT_EQ(y.sizes(), q.sizes());
    return after - before;
  };
  const at::Tensor all = at::ones({40, 40}, at::kBool);
  const std::int64_t probabilities = 2 * 3 * 40 * 40 * 4;
  for (const auto& mask : {std::optional<at::Tensor>(), std::optional(all)}) {
    EXPECT_EQ(kept(at::kMeta, mask, 0.0), kept(at::kCPU, mask, 0.0));
    EXPECT_LT(kept(at::kMeta, mask, 0.0), probabilities);
    // With dropout the CPU keeps all of them too.
    EXPECT_EQ(kept(at::kMeta, mask, 0.5), kept(at::kCPU, mask, 0.5));
    EXPECT_GT(kept(at::kMeta, mask, 0.5), probabilities);
  }
}

TEST(MetaKernels, AttentionOfABatchThatNoMemoryCouldHold) {
  install_meta_kernels();
  const at::Tensor q = at::empty({std::int64_t{1} << 24, 8, 1024, 64}, at::kMeta);
  EXPECT_EQ(at::scaled_dot_product_attention(q, q, q).sizes(), q.sizes());
}

TEST(MetaKernels, WhatRunsOnTheCpuIsNotCounted) {
  memory::install_caching_allocator();
  install_meta_kernels();
  const at::Tensor ids = at::zeros({1000}, at::TensorOptions(at::kLong).device(at::kMeta));
  const auto table = [] {
    const MetaDeviceScope scope;
    return torch::nn::Embedding(50, 64);
  }();
  memory::reset_peaks();
  const memory::Usage before = memory::usage();
  torch::nn::Embedding runs = table;
  runs->forward(ids).sum().backward();
  EXPECT_EQ(table->weight.grad().sizes(), table->weight.sizes());
  EXPECT_EQ(memory::usage().total_live, before.total_live);
  EXPECT_EQ(memory::usage().total_peak, before.total_peak);
}

}  // namespace
}  // namespace pareprop
