#include "pareprop/ops/fused_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "pareprop/ops/attention.h"
#include "pareprop/ops/compare.h"
#include "tests/ops/gradcheck.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using OptionalTensor = std::optional<Tensor>;
using OptionalScale = std::optional<double>;

// CUDA's kernels, as far as the CPU can stand for them: what they expect of their arguments is
// expected here, and their backward pass has only what was kept.
void expect_aligned_bias(const Tensor& q, const Tensor& k, const Tensor& bias, bool aligned) {
  if (!bias.defined()) return;
  EXPECT_EQ(bias.sizes(), (at::IntArrayRef{q.size(0), q.size(1), q.size(2), k.size(2)}));
  EXPECT_EQ(bias.scalar_type(), q.scalar_type());
  EXPECT_EQ(bias.stride(3), 1);
  for (int dimension = 0; aligned && dimension < 3; ++dimension) {
    EXPECT_EQ(bias.stride(dimension) % 16, 0) << dimension;
  }
}

Tensor standard_scores(const Tensor& q, const Tensor& k, const Tensor& bias, OptionalScale scale) {
  const Tensor scores = at::matmul(q, k.transpose(-1, -2)).mul(scale.value());
  return bias.defined() ? scores.add(bias) : scores;
}

// The output, with the heads of a row beside each other, and the logarithms for `rows` queries.
std::tuple<Tensor, Tensor> stand_in(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& bias, OptionalScale scale, std::int64_t rows) {
  EXPECT_EQ(q.stride(3), 1);
  const Tensor scores = standard_scores(q, k, bias, scale);
  const Tensor output = at::matmul(at::softmax(scores, -1), v).transpose(1, 2).contiguous();
  const Tensor sums = at::full({q.size(0), q.size(1), rows}, 1e30, q.options().dtype(at::kFloat));
  sums.narrow(2, 0, q.size(2)).copy_(at::logsumexp(scores, {-1}));
  return {output.transpose(1, 2), sums};
}

Tensors stand_in_backward(const Tensor& doutput, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& bias, const Tensor& output, const Tensor& sums,
                          OptionalScale scale) {
  const Tensor p = standard_scores(q, k, bias, scale)
                       .sub(sums.narrow(2, 0, q.size(2)).unsqueeze(-1).to(q.scalar_type()))
                       .exp();
  const Tensor dp = at::matmul(doutput, v.transpose(-1, -2));
  const Tensor dscores = p.mul(dp.sub(doutput.mul(output).sum(-1, true)));
  return {at::matmul(dscores, k).mul(scale.value()),
          at::matmul(dscores.transpose(-1, -2), q).mul(scale.value()),
          at::matmul(p.transpose(-1, -2), doutput), dscores};
}

Tensor number() { return at::full({}, 7, at::TensorOptions(at::kLong)); }

using NineResults =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

NineResults nine(const std::tuple<Tensor, Tensor>& made, const Tensor& q, const Tensor& k) {
  return {std::get<0>(made), std::get<1>(made), Tensor(), Tensor(), q.size(2),
          k.size(2),         number(),          number(), Tensor()};
}

void lend(torch::Library& lent) {
  lent.impl("_scaled_dot_product_efficient_attention",
            [](const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias,
               bool wanted, double dropout, bool causal, OptionalScale scale) {
              EXPECT_EQ(dropout, 0.0);
              EXPECT_FALSE(causal);
              expect_aligned_bias(q, k, bias.value_or(Tensor()), true);
              auto [output, sums] =
                  stand_in(q, k, v, bias.value_or(Tensor()), scale, (q.size(2) + 31) / 32 * 32);
              if (!wanted) sums = at::empty({0}, sums.options());
              return std::tuple{output, sums, number(), number()};
            });
  lent.impl(
      "_scaled_dot_product_efficient_attention_backward",
      [](const Tensor& doutput, const Tensor& q, const Tensor& k, const Tensor& v,
         const Tensor& bias, const Tensor& output, const Tensor& sums, const Tensor& seed,
         const Tensor& offset, double, std::array<bool, 4> wanted, bool, OptionalScale scale) {
        expect_aligned_bias(q, k, bias, true);
        EXPECT_TRUE(seed.defined() && offset.defined());
        Tensors made = stand_in_backward(doutput, q, k, v, bias, output, sums, scale);
        if (!wanted[3]) made[3] = Tensor();
        return std::tuple{made[0], made[1], made[2], made[3]};
      });
  lent.impl(
      "_scaled_dot_product_flash_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, double, bool, bool,
         OptionalScale scale) { return nine(stand_in(q, k, v, {}, scale, q.size(2)), q, k); });
  lent.impl("_scaled_dot_product_flash_attention_backward",
            [](const Tensor& doutput, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& output, const Tensor& sums, const Tensor&, const Tensor&,
               c10::SymInt queries, c10::SymInt keys, double, bool, const Tensor& seed,
               const Tensor& offset, OptionalScale scale) {
              EXPECT_TRUE(seed.defined() && offset.defined());
              EXPECT_EQ(queries, q.size(2));
              EXPECT_EQ(keys, k.size(2));
              const Tensors made = stand_in_backward(doutput, q, k, v, {}, output, sums, scale);
              return std::tuple{made[0], made[1], made[2]};
            });
  lent.impl("_scaled_dot_product_cudnn_attention",
            [](const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias, bool,
               double, bool, bool, OptionalScale scale) {
              return nine(stand_in(q, k, v, bias.value_or(Tensor()), scale, q.size(2)), q, k);
            });
  lent.impl("_scaled_dot_product_cudnn_attention_backward",
            [](const Tensor& doutput, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& output, const Tensor& sums, const Tensor&, const Tensor&,
               const Tensor& bias, const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double,
               bool, OptionalScale scale) {
              const Tensors made = stand_in_backward(doutput, q, k, v, bias, output, sums, scale);
              return std::tuple{made[0], made[1], made[2]};
            });
  lent.impl("_scaled_dot_product_fused_attention_overrideable",
            [](const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias,
               double, bool, bool, OptionalScale scale) {
              return nine(stand_in(q, k, v, bias.value_or(Tensor()), scale, q.size(2)), q, k);
            });
  lent.impl("_scaled_dot_product_fused_attention_overrideable_backward",
            [](const Tensor& doutput, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& bias, std::array<bool, 4> wanted, const Tensor& output,
               const Tensor& sums, const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double,
               bool, const Tensor&, const Tensor&, OptionalScale scale) {
              Tensors made = stand_in_backward(doutput, q, k, v, bias, output, sums, scale);
              if (!wanted[3]) made[3] = Tensor();
              return std::tuple{made[0], made[1], made[2], made[3]};
            });
}

constexpr std::int64_t kBatch = 6, kHeads = 2, kQueries = 21, kHead = 8;

Tensors fused_inputs(bool bias, std::int64_t groups) {
  at::manual_seed(4);
  Tensors in(kAttentionInputs);
  for (const auto i : {kQ, kK, kV}) in[i] = at::randn({kBatch, kHeads, kQueries, kHead});
  if (bias) in[kBias] = at::randn({kHeads, kQueries, kQueries});
  if (groups > 0) in[kMask] = at::randn({groups, groups == kBatch ? 1 : kQueries, kQueries});
  return in;
}

// Gradients by torch's autograd of the composition, then the output.
Tensors expected_of(const Tensors& in, const Tensor& doutput) {
  Tensors leaves;
  for (const Tensor& t : in) {
    leaves.push_back(t.defined() ? t.detach().clone().requires_grad_(true) : t);
  }
  const Tensor y = composed_attention(leaves[kQ], leaves[kK], leaves[kV],
                                      {.bias = leaves[kBias], .mask = leaves[kMask]});
  y.backward(doutput);
  Tensors all{leaves[kQ].grad(), leaves[kK].grad(), leaves[kV].grad(), y.detach()};
  if (leaves[kBias].defined()) all.push_back(leaves[kBias].grad());
  return all;
}

TEST(FusedAttention, CallsEveryKernelOfTorchAsItIsDefined) {
  at::manual_seed(9);
  torch::Library lent(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  lend(lent);
  for (const auto& [kernel, has_mask, has_bias] : {std::tuple{FusedKernel::flash, false, false},
                                                   {FusedKernel::efficient, true, true},
                                                   {FusedKernel::cudnn, true, false},
                                                   {FusedKernel::overrideable, true, true},
                                                   {FusedKernel::cpu, true, false}}) {
    for (const bool bias : {false, true}) {
      for (const std::int64_t groups :
           {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, kBatch}) {
        if ((bias && !has_bias) || (groups > 0 && !has_mask)) continue;
        SCOPED_TRACE("kernel " + std::to_string(static_cast<int>(kernel)) + ", groups " +
                     std::to_string(groups));
        const Tensors in = fused_inputs(bias, groups);
        const Tensor doutput = at::randn({kBatch, kQueries, kHeads * kHead});
        const AttentionMade made = fused_attention(kernel, in, true);
        const Tensors gradients =
            fused_attention_backward(kernel, in, made.kept, split_heads(doutput, kHeads), bias);
        Tensors got{gradients[kQ], gradients[kK], gradients[kV], made.output};
        if (bias) got.push_back(gradients[kBias]);
        EXPECT_LT(max_relative_error(expected_of(in, doutput), got), 1e-5);
        const AttentionMade again = fused_attention(kernel, in, false);
        EXPECT_TRUE(again.output.equal(made.output));
        EXPECT_TRUE(again.kept.empty());
      }
    }
  }
}

TEST(FusedAttention, IsNotForWhatNoKernelHas) {
  const Tensors plain = fused_inputs(false, 0);
  EXPECT_EQ(fused_kernel_for(plain), FusedKernel::cpu);
  EXPECT_EQ(fused_kernel_for(fused_inputs(false, 3)), FusedKernel::cpu);
  EXPECT_EQ(fused_kernel_for(fused_inputs(true, 0)), FusedKernel::none) << "a bias has a gradient";
  Tensors wide = plain, odd = plain, placed = plain;
  for (const auto i : {kQ, kK, kV}) {
    wide[i] = plain[i].to(at::kDouble);
    odd[i] = plain[i].narrow(3, 0, 7).contiguous();
  }
  placed[kRows] = at::randn({kBatch, kHeads, kQueries, 3});
  placed[kColumns] = at::randn({kBatch, kHeads, kQueries, 7});
  for (const Tensors& in : {wide, odd, placed}) EXPECT_EQ(fused_kernel_for(in), FusedKernel::none);
}

// The meta device stands for CUDA.
TEST(FusedAttention, TheMetaDeviceHasTheKernelThatCudaWouldTake) {
  const auto kernel = [](const Tensors& in, at::ScalarType dtype) {
    Tensors meta;
    for (const Tensor& t : in) meta.push_back(t.defined() ? t.to(at::kMeta, dtype) : t);
    return fused_kernel_for(meta);
  };
  EXPECT_EQ(kernel(fused_inputs(false, 0), at::kBFloat16), FusedKernel::flash);
  EXPECT_EQ(kernel(fused_inputs(true, 0), at::kBFloat16), FusedKernel::efficient);
  EXPECT_EQ(kernel(fused_inputs(false, 3), at::kBFloat16), FusedKernel::efficient);
  EXPECT_EQ(kernel(fused_inputs(false, 0), at::kFloat), FusedKernel::efficient);
  EXPECT_EQ(kernel(fused_inputs(false, 0), at::kDouble), FusedKernel::none);
}

}  // namespace
}  // namespace pareprop
