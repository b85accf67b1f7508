// Operators of a whole training step of vit_small, beside those of the same network written with
// torch::nn and trained as PyTorch does it: the launches of an accelerator. The width does not
// matter for their number.

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <iostream>

#include "pareprop/ops/precision.h"
#include "tests/train/device_steps.h"

namespace pareprop::train {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using pareprop::testing::SimulatedDevice;
using testing::DeviceSteps;

constexpr std::int64_t kWidth = 48, kHeads = 6, kHidden = 4 * kWidth, kImage = 112, kPatch = 16,
                       kClasses = 1000, kBatch = 32;
constexpr int kDepth = 12;

// As torch.nn.Linear in Python; torch::nn::Linear adds the bias in an operator of its own.
Tensor linear(const nn::Linear& layer, const Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

struct EagerAttention : nn::Module {
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear qkv = register_module("qkv", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear proj = register_module("proj", nn::Linear(kWidth, kWidth));

  Tensor forward(const Tensor& x) {
    std::vector<Tensor> parts = linear(qkv, norm(x)).chunk(3, -1);
    for (Tensor& part : parts) part = part.unflatten(-1, {kHeads, -1}).transpose(1, 2);
    const Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return linear(proj, mixed.transpose(1, 2).flatten(2));
  }
};

struct EagerMlp : nn::Module {
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear fc1 = register_module("fc1", nn::Linear(kWidth, kHidden));
  nn::Linear fc2 = register_module("fc2", nn::Linear(kHidden, kWidth));

  Tensor forward(const Tensor& x) { return linear(fc2, at::gelu(linear(fc1, norm(x)))); }
};

// With two streams and the mean of the tokens, or plain, with a class token.
struct EagerViT : nn::Module {
  explicit EagerViT(bool two_streams)
      : streams(two_streams ? 2 : 1),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({streams * kWidth})))),
        head(register_module("head", nn::Linear(streams * kWidth, kClasses))) {
    const std::int64_t patches = (kImage / kPatch) * (kImage / kPatch);
    embed =
        register_module("embed", nn::Conv2d(nn::Conv2dOptions(3, kWidth, kPatch).stride(kPatch)));
    positions =
        register_parameter("positions", at::zeros({1, patches + (two_streams ? 0 : 1), kWidth}));
    if (!two_streams) first = register_parameter("first", at::zeros({1, 1, kWidth}));
    for (int i = 0; i < kDepth; ++i) {
      const std::string number = std::to_string(i);
      attention.push_back(register_module("f" + number, std::make_shared<EagerAttention>()));
      mlp.push_back(register_module("g" + number, std::make_shared<EagerMlp>()));
    }
  }

  Tensor forward(const Tensor& images) {
    Tensor x = embed(images).flatten(2).transpose(1, 2);
    if (first.defined()) x = at::cat({first.expand({x.size(0), -1, -1}), x}, 1);
    x = x.add(positions);
    if (streams == 1) {
      for (std::size_t i = 0; i < mlp.size(); ++i) {
        x = x.add(attention[i]->forward(x));
        x = x.add(mlp[i]->forward(x));
      }
      return linear(head, norm(x.select(1, 0)));
    }
    Tensor y = x;
    for (std::size_t i = 0; i < mlp.size(); ++i) {
      x = x.add(attention[i]->forward(y));
      y = y.add(mlp[i]->forward(x));
    }
    return linear(head, norm(at::cat({x, y}, -1)).mean(1));
  }

  // Without residuals: what checkpointing of every branch computes once more.
  void forward_of_branches(const Tensor& x) {
    for (std::size_t i = 0; i < mlp.size(); ++i) {
      attention[i]->forward(x);
      mlp[i]->forward(x);
    }
  }

  std::int64_t streams;
  nn::LayerNorm norm;
  nn::Linear head;
  nn::Conv2d embed{nullptr};
  Tensor positions, first;
  std::vector<std::shared_ptr<EagerAttention>> attention;
  std::vector<std::shared_ptr<EagerMlp>> mlp;
};

// torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW(fused=True), as their Python code calls
// them.
class EagerTraining {
 public:
  explicit EagerTraining(const EagerViT& model) : weights_(model.parameters()) {
    for (const Tensor& weight : weights_) {
      averages_.push_back(at::zeros_like(weight));
      squares_.push_back(at::zeros_like(weight));
      steps_.push_back(at::zeros({}, weight.options().requires_grad(false)));
    }
  }

  void step(const Tensor& loss) {
    for (const Tensor& weight : weights_) weight.mutable_grad().reset();
    loss.backward();
    const at::NoGradGuard no_grad;
    std::vector<Tensor> gradients;
    for (const Tensor& weight : weights_) gradients.push_back(weight.grad());
    const Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
    at::_foreach_mul_(gradients, norm.add(1e-6).reciprocal().mul(1.0).clamp_max(1.0));
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(weights_, gradients, averages_, squares_, {}, steps_, 1e-4, 0.9, 0.999, 0.05,
                      1e-8, false, false);
    loss.item<double>();
  }

 private:
  std::vector<Tensor> weights_, averages_, squares_, steps_;
};

struct EagerCounts {
  std::int64_t step = 0;      // everything stored
  std::int64_t branches = 0;  // their forward pass
};

EagerCounts count_eager(bool two_streams, Precision precision) {
  EagerViT model(two_streams);
  model.to(SimulatedDevice::device());
  EagerTraining training(model);
  const auto type = SimulatedDevice::device().type();
  const auto options = at::TensorOptions(SimulatedDevice::device());
  const Tensor images = at::zeros({kBatch, 3, kImage, kImage}, options);
  const Tensor labels = at::zeros({kBatch}, options.dtype(at::kLong));
  const auto forward = [&](auto&& run) {
    const AutocastScope scope(type, AutocastState::of_this_thread(type, precision));
    return run();
  };
  const auto step = [&] {
    training.step(forward([&] { return at::cross_entropy_loss(model.forward(images), labels); }));
  };
  EagerCounts counts;
  SimulatedDevice::reset_counts();
  step();
  counts.step = SimulatedDevice::counts().launches;
  const at::NoGradGuard no_grad;
  const Tensor x = at::zeros({kBatch, (kImage / kPatch) * (kImage / kPatch), kWidth}, options);
  SimulatedDevice::reset_counts();
  forward([&] { model.forward_of_branches(x); });
  counts.branches = SimulatedDevice::counts().launches;
  return counts;
}

std::int64_t count_ours(bool plain, Mode mode, Precision precision) {
  DeviceSteps steps("vit_small",
                    {.width = kWidth, .image_size = kImage, .drop_path = 0.0, .plain = plain},
                    kBatch);
  steps.model().set_options({.precision = precision});
  steps.model().set_mode(mode);
  steps.run();
  SimulatedDevice::reset_counts();
  steps.run();
  return SimulatedDevice::counts().launches;
}

constexpr double kMost = 1.3;

double told_ratio(const std::string& what, std::int64_t ours, std::int64_t theirs) {
  const double ratio = static_cast<double>(ours) / static_cast<double>(theirs);
  std::cout << "vit_small, " << what << ": " << ours << " operators, eager " << theirs << ", ratio "
            << ratio << "\n";
  return ratio;
}

TEST(DeviceLaunches, OfAStepAreCloseToThoseOfEagerPyTorch) {
  const std::vector<Mode> few{Mode::pareprop}, all{Mode::checkpoint, Mode::reprop, Mode::pareprop};
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const std::string type(name(precision));
    const EagerCounts eager = count_eager(/*two_streams=*/true, precision);
    EXPECT_LE(told_ratio(type + ", stored", count_ours(false, Mode::stored, precision), eager.step),
              kMost);
    // What recomputes is compared with a network whose every branch is computed once more.
    const std::int64_t again = eager.step + eager.branches;
    for (const Mode mode : precision == Precision::fp32 ? all : few) {
      EXPECT_LE(told_ratio(type + ", " + std::string(name(mode)),
                           count_ours(false, mode, precision), again),
                kMost);
    }
  }
  const EagerCounts plain = count_eager(/*two_streams=*/false, Precision::fp32);
  EXPECT_LE(told_ratio("fp32, plain", count_ours(true, Mode::stored, Precision::fp32), plain.step),
            kMost);
}

}  // namespace
}  // namespace pareprop::train
