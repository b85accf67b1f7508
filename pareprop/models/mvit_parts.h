#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "pareprop/models/layers.h"
#include "pareprop/models/pooling_attention.h"

namespace pareprop::models {

// The embedding: a convolution of the image, padded by half of its kernel, whose places are the
// tokens. Parameters: weight (width, channels, kernel, kernel), bias (width).
class PatchConv : public torch::nn::Module {
 public:
  PatchConv(std::int64_t channels, std::int64_t width, std::int64_t kernel, std::int64_t stride,
            WeightMaker& make);
  at::Tensor forward(const at::Tensor& images);  // (batch, channels, height, width)

 private:
  std::int64_t stride_;
  at::Tensor weight_, bias_;
};

// Lets the two streams of a stage see each other before the next one: x + MLP(x), x being both of
// them channel by channel. Parameters: fc1.{weight,bias}, fc2.{weight,bias}.
class Fusion : public torch::nn::Module {
 public:
  Fusion(std::int64_t width, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x);

 private:
  std::shared_ptr<LinearLayer> fc1_, fc2_;
};

// How the shortcut around a pooling attention gets the attention's size.
enum class ShortcutPool {
  as_queries,  // by the convolution and norm of the queries
  maximum,     // of 3x3 neighbours
};

// G of a block that leaves with more channels than it has: its MLP makes them. Parameters:
// norm.{weight,bias}, fc1.{weight,bias}, fc2.{weight,bias}.
class WideningMlp : public torch::nn::Module {
 public:
  WideningMlp(std::int64_t width, std::int64_t hidden, std::int64_t out, double eps, DropRates drop,
              WeightMaker& make);
  at::Tensor normed(const at::Tensor& x) { return norm_->forward(x); }
  at::Tensor expand(const at::Tensor& normed);

 private:
  DropRates drop_;
  std::shared_ptr<NormLayer> norm_;
  std::shared_ptr<LinearLayer> fc1_, fc2_;
};

struct ResizingShape {
  PoolingShape f = {};
  std::int64_t mlp_hidden = 0;
  std::int64_t out = 0;  // channels of the result. REQUIRES: f.in, f.width or both are this
  ShortcutPool pool = ShortcutPool::maximum;  // REQUIRES: f.in is f.width for as_queries
};

// A block that halves the map, doubles the channels, or both: h = shortcut(x) + f(x), y = h + g(h).
// Where f or g widens, the shortcut around it is a linear layer on its norm. Parameters: f.*
// (PoolingAttention), g.{norm,fc1,fc2}.{weight,bias}, and shortcut.{weight,bias} where it widens.
class ResizingBlock : public torch::nn::Module {
 public:
  ResizingBlock(const ResizingShape& shape, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

 private:
  at::Tensor pooled(const at::Tensor& tokens);

  ResizingShape shape_;
  std::shared_ptr<PoolingAttention> f_;
  std::shared_ptr<Mlp> g_;                   // or
  std::shared_ptr<WideningMlp> widening_g_;  // this
  std::shared_ptr<LinearLayer> shortcut_;
};

}  // namespace pareprop::models
