// Each op against the composition of torch's operators that it replaces. "Forward" is without a
// graph, "Training" forward and backward.

#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/attention.h"
#include "pareprop/ops/layer_norm.h"
#include "pareprop/ops/mlp.h"

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

void forward(benchmark::State& state, const Function& function, const Tensors& inputs) {
  c10::AutoGradMode no_graph(false);
  for (auto _ : state) benchmark::DoNotOptimize(function(inputs));
}

void training(benchmark::State& state, const Function& function, const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& t : inputs) leaves.push_back(t.detach().requires_grad_(true));
  const Tensor gradient = at::ones_like(function(inputs));
  for (auto _ : state) {
    benchmark::DoNotOptimize(torch::autograd::grad({function(leaves)}, leaves, {gradient}));
  }
}

// q, k and v of packed qkv (batch, tokens, 3 * heads * head), as (batch, heads, tokens, head).
Tensors split_qkv(const Tensor& qkv, std::int64_t heads) {
  return qkv.view({qkv.size(0), qkv.size(1), 3, heads, qkv.size(2) / 3 / heads})
      .permute({2, 0, 3, 1, 4})
      .unbind(0);
}

Tensor join(const Tensor& heads) { return heads.transpose(1, 2).flatten(2); }

void add(const std::string& name, const Function& function, const Tensors& inputs) {
  auto measured = [&](const std::string& kind, auto run) {
    benchmark::RegisterBenchmark(
        (name + "/" + kind).c_str(),
        [run, function, inputs](benchmark::State& state) { run(state, function, inputs); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  };
  measured("forward", forward);
  measured("training", training);
}

void add_attention(const std::string& shape, std::int64_t batch, std::int64_t tokens,
                   std::int64_t heads, std::int64_t head, bool biased) {
  Tensors inputs{at::randn({batch, tokens, 3 * heads * head})};
  if (biased) inputs.push_back(at::randn({heads, tokens, tokens}));
  auto terms = [biased](const Tensors& in) {
    pareprop::AttentionTerms given;
    if (biased) given.bias = in[1];
    return given;
  };
  add(
      "attention/" + shape + "/ours",
      [=](const Tensors& in) { return pareprop::self_attention(in[0], heads, terms(in)); }, inputs);
  add(
      "attention/" + shape + "/composed",
      [=](const Tensors& in) {
        const Tensors parts = split_qkv(in[0], heads);
        return pareprop::composed_attention(parts[0], parts[1], parts[2], terms(in));
      },
      inputs);
  add(
      "attention/" + shape + "/sdpa",
      [=](const Tensors& in) {
        const Tensors parts = split_qkv(in[0], heads);
        std::optional<Tensor> bias;
        if (biased) bias = in[1];
        return join(at::scaled_dot_product_attention(parts[0], parts[1], parts[2], bias));
      },
      inputs);
}

void add_mlp(const std::string& shape, std::int64_t tokens, std::int64_t width) {
  const Tensors inputs{at::randn({tokens, width}), at::randn({4 * width, width}).mul_(0.02),
                       at::randn({4 * width}), at::randn({width, 4 * width}).mul_(0.02),
                       at::randn({width})};
  add(
      "mlp/" + shape + "/ours",
      [](const Tensors& in) { return pareprop::mlp(in[0], in[1], in[2], in[3], in[4]); }, inputs);
  add(
      "mlp/" + shape + "/composed",
      [](const Tensors& in) {
        return at::linear(at::gelu(at::linear(in[0], in[1], in[2])), in[3], in[4]);
      },
      inputs);
}

void add_norm(const std::string& shape, std::int64_t tokens, std::int64_t width) {
  const Tensors inputs{at::randn({tokens, width}), at::randn({width}), at::randn({width})};
  add(
      "norm/" + shape + "/ours",
      [](const Tensors& in) { return pareprop::layer_norm(in[0], in[1], in[2], 1e-6); }, inputs);
  add(
      "norm/" + shape + "/composed",
      [](const Tensors& in) { return at::layer_norm(in[0], in[1].sizes(), in[1], in[2], 1e-6); },
      inputs);
}

}  // namespace

int main(int argc, char** argv) {
  pareprop::memory::install_caching_allocator();
  add_attention("vit_small_batch4", 4, 196, 6, 64, false);
  add_attention("roberta_base_4x128", 4, 128, 12, 64, false);
  add_attention("vit_small_1024px", 1, 4096, 6, 64, false);
  add_attention("swin_tiny_stage1_batch4", 256, 49, 3, 32, true);
  add_mlp("vit_small_batch4", 784, 384);
  add_mlp("vit_small_batch32", 6272, 384);
  add_norm("vit_small_batch4", 784, 384);
  add_norm("vit_small_batch32", 6272, 384);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
