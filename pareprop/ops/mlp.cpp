#include "pareprop/ops/mlp.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "pareprop/ops/device_mlp.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/mac_counter.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/product.h"
#include "pareprop/ops/row_ops.h"
#include "pareprop/ops/tape_scopes.h"
#include "pareprop/ops/weight_gradient.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows that are worked on at a time, from the first product to the last, so that what is between
// them stays in the cache. A product of so many is as fast as a large one.
constexpr std::int64_t kPartRows = 512;

// Whole parts take the same memory one after the other, so on the meta device one stands for all:
// a step of any batch is run there in the same time. `row_macs` are those of a row.
template <typename Body>
void by_parts(const Tensor& rows, double row_macs, const Body& body) {
  const std::int64_t count = rows.size(0);
  const std::int64_t whole = count / kPartRows * kPartRows;
  std::int64_t first = 0;
  if (rows.is_meta() && whole > kPartRows) {
    first = whole - kPartRows;
    add_meta_macs(static_cast<double>(first) * row_macs);
  }
  for (; first < count; first += kPartRows) body(first, std::min(kPartRows, count - first));
}

// What is needed to run the network, in the type of its products.
struct Layers {
  Tensor w1, b1, w2, b2;  // b1 in the type of the parameters
};

// What is written besides the output, where it is defined. Rows of the hidden layer.
struct Kept {
  Tensor sums = {};    // x w1^T
  Tensor hidden = {};  // gelu(x w1^T + b1) ..
  Tensor slope = {};   // .. and its slope
};

Tensor run_layers(const Tensor& x, const Layers& layers, const Kept& kept, bool output_needed) {
  const Tensor in = as_rows(x);
  auto sizes = x.sizes().vec();
  sizes.back() = layers.w2.size(0);
  Tensor y = output_needed ? at::empty({in.size(0), sizes.back()}, in.options()) : Tensor();
  Tensor some;  // of the hidden rows
  if (!kept.hidden.defined()) {
    some = at::empty({std::min(kPartRows, in.size(0)), layers.w1.size(0)}, in.options());
  }
  const auto row_macs = static_cast<double>(layers.w1.numel()) +
                        (output_needed ? static_cast<double>(layers.w2.numel()) : 0.0);
  by_parts(in, row_macs, [&](std::int64_t first, std::int64_t count) {
    const auto part = [&](const Tensor& t) {
      return t.defined() ? t.narrow(0, first, count) : Tensor();
    };
    const Tensor h = kept.hidden.defined() ? part(kept.hidden) : some.narrow(0, 0, count);
    Tensor sums = kept.sums.defined() ? part(kept.sums) : h;
    product_into(sums, part(in), layers.w1.t());
    bias_gelu(sums, layers.b1, h, part(kept.slope));
    if (!output_needed) return;
    Tensor out = part(y);
    affine_into(out, h, layers.w2, layers.b2);
  });
  return output_needed ? y.view(sizes) : unspecified(x, sizes.back());
}

enum Saved { kX, kFirst, kFirstBias, kSecond, kSums, kHidden, kSlope };
enum Parameter { kW1, kB1, kW2, kB2 };
constexpr const char* kNames[] = {"w1", "b1", "w2", "b2"};

struct MlpFunction : torch::autograd::Function<MlpFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w1, const Tensor& b1,
                        const Tensor& w2, const Tensor& b2, bool output_needed) {
    const auto dtype = compute_dtype(x);
    const Tensor x_used = x.to(dtype);
    const Layers layers{w1.to(dtype), b1, w2.to(dtype), b2.to(dtype)};
    const bool lean = tape_is_lean();
    Kept kept;
    Tensor& made = lean ? kept.sums : kept.hidden;
    made = at::empty({x.numel() / x.size(-1), w1.size(0)}, x_used.options());
    if (!lean) kept.slope = at::empty_like(made);
    Tensor y = run_layers(x_used, layers, kept, output_needed);
    ctx->save_for_backward({x_used, lean ? w1 : layers.w1, lean ? b1 : Tensor(),
                            lean ? w2 : layers.w2, kept.sums, kept.hidden, kept.slope});
    const Tensor parameters[] = {w1, b1, w2, b2};
    for (const int i : {kW1, kB1, kW2, kB2}) {
      ctx->saved_data[kNames[i]] = deferrable(parameters[i]);
    }
    ctx->saved_data["x_dtype"] = x.scalar_type();
    ctx->saved_data["weight_dtype"] = w1.scalar_type();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor& x = saved[kX];
    const bool lean = saved[kSums].defined();
    const Tensor sums = lean ? saved[kSums].detach() : Tensor();
    const Tensor hidden = lean ? at::empty_like(sums) : saved[kHidden];
    const Tensor slope = lean ? Tensor() : saved[kSlope].detach();
    const auto dtype = ctx->saved_data["weight_dtype"].toScalarType();
    const Tensor dy = as_rows(grads[0].to(x.scalar_type()));
    const Tensor& last_read = lean ? sums : slope;
    const Tensor dhidden = tape_is_consumed() ? last_read : at::empty_like(last_read);
    const bool x_wanted = ctx->needs_input_grad(0);
    const Tensor dx = x_wanted ? at::empty({dy.size(0), x.size(-1)}, x.options()) : Tensor();
    {
      const Tensor w1 = saved[kFirst].to(x.scalar_type()), w2 = saved[kSecond].to(x.scalar_type());
      const Tensor some = at::empty({std::min(kPartRows, dy.size(0)), w1.size(0)}, x.options());
      const Tensor slopes_again = lean ? at::empty_like(some) : Tensor();
      const auto row_macs =
          static_cast<double>(w2.numel()) + (x_wanted ? static_cast<double>(w1.numel()) : 0.0);
      by_parts(dy, row_macs, [&](std::int64_t first, std::int64_t count) {
        const auto part = [&](const Tensor& t) { return t.narrow(0, first, count); };
        Tensor made = some.narrow(0, 0, count), dh = part(dhidden);
        const Tensor slopes = lean ? slopes_again.narrow(0, 0, count) : part(slope);
        if (lean) bias_gelu(part(sums), saved[kFirstBias], part(hidden), slopes);
        product_into(made, part(dy), w2);
        at::mul_out(dh, made, slopes);
        if (!x_wanted) return;
        Tensor out = part(dx);
        product_into(out, dh, w1);
      });
    }
    auto wanted = [&](Parameter p) {
      return ctx->needs_input_grad(static_cast<std::size_t>(p) + 1);
    };
    auto remembered = [&](Parameter p) { return ctx->saved_data[kNames[p]]; };
    variable_list result(6);
    if (x_wanted) {
      result[0] = dx.view(x.sizes()).to(ctx->saved_data["x_dtype"].toScalarType());
    }
    if (wanted(kW1)) result[1] = weight_gradient(remembered(kW1), dhidden, as_rows(x), dtype);
    if (wanted(kB1)) result[2] = bias_gradient(remembered(kB1), dhidden, dtype);
    if (wanted(kW2)) result[3] = weight_gradient(remembered(kW2), dy, hidden, dtype);
    if (wanted(kB2)) result[4] = bias_gradient(remembered(kB2), dy, dtype);
    return result;
  }
};

}  // namespace

at::Tensor mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& b1,
               const at::Tensor& w2, const at::Tensor& b2, bool output_needed) {
  if (!runs_kernels(x)) return device_mlp(x, w1, b1, w2, b2, output_needed);
  if (records({x, w1, b1, w2, b2})) return MlpFunction::apply(x, w1, b1, w2, b2, output_needed);
  const auto dtype = compute_dtype(x);
  return run_layers(x.to(dtype), {w1.to(dtype), b1, w2.to(dtype), b2.to(dtype)}, {}, output_needed);
}

}  // namespace pareprop
