#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "pareprop/models/layers.h"

namespace pareprop::models {

struct PoolingShape {
  std::int64_t in = 0;     // channels of x
  std::int64_t width = 0;  // channels of queries, keys, values and of the result
  std::int64_t heads = 1;
  std::int64_t map = 0;  // tokens of x are a map of this height and width, row by row
  std::int64_t q_stride = 1;
  std::int64_t kv_stride = 1;
  bool pool_queries = true;        // REQUIRES: true where q_stride is not 1
  bool relative_positions = true;  // in the scores
  bool residual_pooling = true;    // the pooled queries are added to what attention mixed
  double eps = 1e-6;
  DropRates drop = {};

  std::int64_t q_map() const { return (map - 1) / q_stride + 1; }
  std::int64_t kv_map() const { return (map - 1) / kv_stride + 1; }
};

// A depth-wise 3x3 convolution without bias: weight (channels, 1, 3, 3), padded by 1.
class PoolLayer : public torch::nn::Module {
 public:
  PoolLayer(std::int64_t channels, std::int64_t stride, WeightMaker& make);
  at::Tensor forward(const at::Tensor& maps);  // (batch, height, width, channels)

 private:
  std::int64_t stride_;
  at::Tensor weight_;
};

// F of MViT: norm, then multi-head attention whose queries, keys and values are pooled: each head
// is a map, convolved (with the same weights for all heads) and normed. x is (batch, map * map,
// in), the result (batch, q_map * q_map, width).
//
// Parameters: norm.{weight,bias}; qkv.{weight,bias}, in the order q, k, v; pool_q.weight,
// norm_q.{weight,bias} where queries are pooled; pool_k.weight, norm_k.{weight,bias};
// pool_v.weight, norm_v.{weight,bias}; rel_pos_h, rel_pos_w (2 * max(q_map, kv_map) - 1, width /
// heads) with relative positions; proj.{weight,bias}.
class PoolingAttention : public ModuleWithConstants {
 public:
  static constexpr bool skips_output = true;
  PoolingAttention(const PoolingShape& shape, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

  // The two parts of forward().
  at::Tensor normed(const at::Tensor& x) { return norm_->forward(x); }
  at::Tensor attend(const at::Tensor& normed, const BranchCall& call);

  // Pools tokens (batch, map * map, width) as queries are. REQUIRES: pool_queries.
  at::Tensor pool_as_queries(const at::Tensor& tokens);

 private:
  struct Pool {
    std::shared_ptr<PoolLayer> conv;
    std::shared_ptr<NormLayer> norm;
  };
  void place_constants(const at::TensorOptions& weights) override;
  Pool add_pool(const std::string& letter, std::int64_t stride, WeightMaker& make);
  at::Tensor position_scores(const at::Tensor& q, const at::Tensor& table, int axis);

  PoolingShape shape_;
  std::shared_ptr<NormLayer> norm_;
  std::shared_ptr<LinearLayer> qkv_, proj_;
  Pool pool_q_, pool_k_, pool_v_;
  at::Tensor rel_pos_h_, rel_pos_w_;
  // Long (q_map * kv_map): the row of the tables for each pair of a query's and a key's coordinate.
  at::Tensor table_rows_;
};

}  // namespace pareprop::models
