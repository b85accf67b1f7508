#include "pareprop/models/pooling_attention.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/attention.h"
#include "pareprop/ops/conv2d.h"
#include "pareprop/ops/product.h"

namespace pareprop::models {
namespace {

// The distance of query i and key j counts from the last key. Where the maps differ in size, the
// coordinates of the smaller are stretched to the larger; distances between rows are rounded down.
at::Tensor relative_rows(std::int64_t queries, std::int64_t keys) {
  at::Tensor rows = at::empty({queries, keys}, at::kLong);
  auto row = rows.accessor<std::int64_t, 2>();
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t j = 0; j < keys; ++j) {
      const std::int64_t from_last = keys - 1 - j;
      row[i][j] = queries >= keys ? (i * keys + from_last * queries) / keys
                                  : i * keys / queries + from_last;
    }
  }
  return rows.view({-1});
}

}  // namespace

PoolLayer::PoolLayer(std::int64_t channels, std::int64_t stride, WeightMaker& make)
    : stride_(stride), weight_(make.uniform(*this, "weight", {channels, 1, 3, 3})) {}

at::Tensor PoolLayer::forward(const at::Tensor& maps) {
  return conv2d(maps, weight_, {}, {.stride = stride_, .padding = 1, .groups = weight_.size(0)});
}

PoolingAttention::PoolingAttention(const PoolingShape& shape, WeightMaker& make) : shape_(shape) {
  norm_ = register_module("norm", std::make_shared<NormLayer>(shape.in, shape.eps, make));
  qkv_ = register_module("qkv", std::make_shared<LinearLayer>(shape.in, 3 * shape.width, make));
  if (shape.pool_queries) pool_q_ = add_pool("q", shape.q_stride, make);
  pool_k_ = add_pool("k", shape.kv_stride, make);
  pool_v_ = add_pool("v", shape.kv_stride, make);
  if (shape.relative_positions) {
    const std::int64_t rows = 2 * std::max(shape.q_map(), shape.kv_map()) - 1;
    const std::int64_t head = shape.width / shape.heads;
    rel_pos_h_ = make.normal(*this, "rel_pos_h", {rows, head});
    rel_pos_w_ = make.normal(*this, "rel_pos_w", {rows, head});
    table_rows_ = relative_rows(shape.q_map(), shape.kv_map());
    place_constants(rel_pos_h_.options().requires_grad(false));
  }
  proj_ = register_module("proj", std::make_shared<LinearLayer>(shape.width, shape.width, make));
}

void PoolingAttention::place_constants(const at::TensorOptions& weights) {
  if (!shape_.relative_positions) return;
  memory::TagScope tag(memory::Tag::parameters);
  table_rows_ = table_rows_.to(weights.device());
}

PoolingAttention::Pool PoolingAttention::add_pool(const std::string& letter, std::int64_t stride,
                                                  WeightMaker& make) {
  const std::int64_t head = shape_.width / shape_.heads;
  return {register_module("pool_" + letter, std::make_shared<PoolLayer>(head, stride, make)),
          register_module("norm_" + letter, std::make_shared<NormLayer>(head, shape_.eps, make))};
}

at::Tensor PoolingAttention::forward(const at::Tensor& x, const BranchCall& call) {
  return attend(normed(x), call);
}

at::Tensor PoolingAttention::attend(const at::Tensor& normed, const BranchCall& call) {
  const auto batch = normed.size(0), heads = shape_.heads, head = shape_.width / heads;
  const auto qkv = qkv_->forward(normed)
                       .view({batch, shape_.map * shape_.map, 3, heads, head})
                       .permute({2, 0, 3, 1, 4})
                       .reshape({3, batch * heads, shape_.map, shape_.map, head})
                       .unbind(0);
  const auto pooled = [](const Pool& pool, const at::Tensor& maps) {
    return pool.conv ? pool.norm->forward(pool.conv->forward(maps)).to(maps.scalar_type()) : maps;
  };
  const at::Tensor q = pooled(pool_q_, qkv[0]);
  auto as_heads = [&](const at::Tensor& maps) { return maps.view({batch, heads, -1, head}); };
  AttentionTerms terms{.dropout = is_training() ? shape_.drop.dropout : 0.0};
  if (shape_.relative_positions) {
    const std::int64_t queries = q.size(1) * q.size(2);
    auto scores = [&](const at::Tensor& table, int axis) {
      return position_scores(q, table, axis).reshape({batch, heads, queries, -1});
    };
    terms.position_rows = scores(rel_pos_h_, 1);
    terms.position_columns = scores(rel_pos_w_, 2);
  }
  at::Tensor mixed = attention(as_heads(q), as_heads(pooled(pool_k_, qkv[1])),
                               as_heads(pooled(pool_v_, qkv[2])), terms);
  if (shape_.residual_pooling) mixed = mixed.add(as_heads(q).transpose(1, 2).flatten(2));
  return drop_output(*this, shape_.drop, proj_->forward(mixed, call.output_needed));
}

// q (maps, q_map, q_map, head) by the rows of the table that belong to its coordinate along `axis`:
// (maps, q_map, q_map, kv_map).
at::Tensor PoolingAttention::position_scores(const at::Tensor& q, const at::Tensor& table,
                                             int axis) {
  const auto maps = q.size(0), side = q.size(1), head = q.size(3);
  // As gather, which has a kernel on the meta device, where index_select has none.
  const at::Tensor rows = table.gather(0, table_rows_.unsqueeze(1).expand({-1, head}))
                              .to(q.scalar_type())
                              .view({side, -1, head});
  const at::Tensor lines = q.movedim(axis, 0).reshape({side, maps * side, head});
  return batched_product(lines, rows.transpose(1, 2)).view({side, maps, side, -1}).movedim(0, axis);
}

at::Tensor PoolingAttention::pool_as_queries(const at::Tensor& tokens) {
  const auto batch = tokens.size(0), heads = shape_.heads, head = shape_.width / heads;
  const at::Tensor maps = tokens.view({batch, shape_.map * shape_.map, heads, head})
                              .transpose(1, 2)
                              .reshape({batch * heads, shape_.map, shape_.map, head});
  return pool_q_.norm->forward(pool_q_.conv->forward(maps))
      .view({batch, heads, -1, head})
      .transpose(1, 2)
      .reshape({batch, -1, shape_.width})
      .to(tokens.scalar_type());
}

}  // namespace pareprop::models
