#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/reversible/branch.h"

namespace pareprop::models {

// Where and in what dtype a model's weights are made. On the meta device nothing is allocated:
// enough to count them. On others they are drawn from `seed`, without touching any global
// generator.
struct WeightOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  std::uint64_t seed = 0;
};

// Makes and registers the parameters of one module; each is drawn from (seed, number of the
// parameter).
class WeightMaker {
 public:
  explicit WeightMaker(const WeightOptions& options) : options_(options) {}

  // Normal with standard deviation 0.02, cut off at two of them.
  at::Tensor normal(torch::nn::Module& module, const std::string& name, at::IntArrayRef sizes);
  // Uniform within +-1 / sqrt(inputs of an output), as torch makes the weights of convolutions.
  at::Tensor uniform(torch::nn::Module& module, const std::string& name, at::IntArrayRef sizes);
  at::Tensor constant(torch::nn::Module& module, const std::string& name, at::IntArrayRef sizes,
                      double value);

 private:
  at::Tensor add(torch::nn::Module& module, const std::string& name, at::Tensor value);
  at::Generator generator() const;

  WeightOptions options_;
  std::uint64_t made_ = 0;
};

// A module with tensors that follow from its configuration. They move with its weights, and are no
// buffers, as those are saved with a model.
class ModuleWithConstants : public torch::nn::Module {
 public:
  void to(at::Device device, at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::Device device, bool non_blocking = false) override;

 private:
  virtual void place_constants(const at::TensorOptions& weights) = 0;
  void follow_weights();
};

// weight (out, in) and, where asked for, bias (out).
class LinearLayer : public torch::nn::Module {
 public:
  LinearLayer(std::int64_t in, std::int64_t out, WeightMaker& make, bool with_bias = true);
  at::Tensor forward(const at::Tensor& x, bool output_needed = true);

  at::Tensor weight, bias;
};

// Over the last dimension.
class NormLayer : public torch::nn::Module {
 public:
  NormLayer(std::int64_t width, double eps, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;

 private:
  double eps_;
};

struct DropRates {
  double dropout = 0.0;    // of attention probabilities and branch outputs
  double drop_path = 0.0;  // of whole branches, per sample
};

// The rates of one block: drop_path grows linearly from 0 to that of `drop` over the blocks of a
// network.
DropRates drop_of_block(DropRates drop, int block, int blocks);

// What every branch ends with: dropout and drop-path of its output, while `branch` trains.
at::Tensor drop_output(const torch::nn::Module& branch, const DropRates& drop, const at::Tensor& y);

struct BlockShape {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t mlp_hidden = 0;
  double eps = 1e-6;
  DropRates drop = {};  // drop_path grows linearly from 0 to this over the blocks
  bool qkv_bias = true;
};

// F of ViT and RoBERTa: norm, multi-head self-attention over all tokens, projection. x is (batch,
// tokens, width); extras[0], where defined, is a mask of the scores (AttentionTerms).
class SelfAttention : public torch::nn::Module {
 public:
  static constexpr bool skips_output = true;
  SelfAttention(const BlockShape& shape, DropRates drop, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

 protected:
  // What follows the norm. Frees x as soon as it is read, if nobody else has it.
  at::Tensor attend(at::Tensor x, const BranchCall& call);
  std::shared_ptr<NormLayer> norm_;

 private:
  std::int64_t heads_;
  DropRates drop_;
  std::shared_ptr<LinearLayer> qkv_, proj_;
};

// G: norm, linear, GELU, linear.
class Mlp : public torch::nn::Module {
 public:
  static constexpr bool skips_output = true;
  Mlp(std::int64_t width, std::int64_t hidden, double eps, DropRates drop, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

 protected:
  // What follows the norm.
  at::Tensor transform(const at::Tensor& x, const BranchCall& call);
  std::shared_ptr<NormLayer> norm_;

 private:
  DropRates drop_;
  std::shared_ptr<LinearLayer> fc1_, fc2_;
};

// The same with the norm behind the sum of input and output, which is the branch's output: for
// Coupling::sequential.
class SelfAttentionThenNorm : public SelfAttention {
 public:
  static constexpr bool skips_output = false;
  using SelfAttention::SelfAttention;
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);
};
class MlpThenNorm : public Mlp {
 public:
  static constexpr bool skips_output = false;
  using Mlp::Mlp;
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);
};

// The blocks of RoBERTa and BERT as they were published.
std::vector<Block> norm_behind_blocks(int depth, const BlockShape& shape, WeightMaker& make);

// The blocks of ViT and of RoBERTa with norms first, for a stack or for plain ones.
std::vector<Block> attention_blocks(int depth, const BlockShape& shape, WeightMaker& make);

}  // namespace pareprop::models
