#include "pareprop/models/tied_table.h"

#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/product.h"

namespace pareprop::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether nobody else reads it, so that it may be written.
bool only_here(const at::Tensor& gradient) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1;
}

at::Tensor looked_up(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding) {
  if (!table.is_meta()) return at::embedding(table, ids, padding);
  // torch has this op on the meta device in Python only.
  std::vector<std::int64_t> sizes = ids.sizes().vec();
  sizes.push_back(table.size(1));
  return at::empty(sizes, table.options());
}

struct RowsOf : torch::autograd::Function<RowsOf> {
  static variable_list forward(AutogradContext* context, const at::Tensor& table,
                               const at::Tensor& ids, std::int64_t padding) {
    context->set_materialize_grads(false);
    context->save_for_backward({ids});
    context->saved_data["rows"] = table.size(0);
    context->saved_data["padding"] = padding;
    return {looked_up(table, ids, padding), table};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor &of_rows = gradients[0], &of_products = gradients[1];
    if (!of_rows.defined()) return {of_products, {}, {}};
    memory::TagScope tag(memory::Tag::gradients);
    at::Tensor sum;
    if (!of_products.defined()) {
      sum = at::zeros({context->saved_data["rows"].toInt(), of_rows.size(-1)}, of_rows.options());
    } else {
      sum = only_here(of_products) ? of_products : of_products.clone();
    }
    const at::Tensor ids = context->get_saved_variables()[0].reshape({-1});
    const at::Tensor padded = ids.eq(context->saved_data["padding"].toInt()).unsqueeze(-1);
    sum.index_add_(0, ids, of_rows.reshape({-1, of_rows.size(-1)}).masked_fill(padded, 0));
    return {sum, {}, {}};
  }
};

struct TableProducts : torch::autograd::Function<TableProducts> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& table,
                            const at::Tensor& bias, at::ScalarType dtype) {
    context->save_for_backward({x, table});
    context->saved_data["dtype"] = dtype;
    if (dtype == table.scalar_type()) return at::linear(x, table, bias);
    auto sizes = x.sizes().vec();
    sizes.back() = table.size(0);
    const at::Tensor scores = at::empty(sizes, x.options()).flatten(0, -2),
                     rows = by_rows(x, dtype);
    by_parts(table, [&](std::int64_t first, std::int64_t count) {
      const at::Tensor part = table.narrow(0, first, count).to(dtype);
      at::Tensor out = scores.narrow(1, first, count);
      at::add_out(out, product(rows, part.t(), x.scalar_type()), bias.narrow(0, first, count));
    });
    return scores.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &table = saved[1];
    const at::Tensor of_scores = gradients[0].reshape({-1, table.size(0)});
    variable_list result(4);
    const auto dtype = context->saved_data["dtype"].toScalarType();
    if (dtype == table.scalar_type()) {
      if (context->needs_input_grad(0)) result[0] = of_scores.mm(table).view(x.sizes());
      memory::TagScope tag(memory::Tag::gradients);
      if (context->needs_input_grad(1)) result[1] = of_scores.t().mm(by_rows(x, dtype));
    } else {
      narrow_backward(of_scores, x, table, dtype, context->needs_input_grad(1), result);
    }
    memory::TagScope tag(memory::Tag::gradients);
    if (context->needs_input_grad(2)) result[2] = of_scores.sum(0);
    return result;
  }

 private:
  static at::Tensor by_rows(const at::Tensor& x, at::ScalarType dtype) {
    return x.reshape({-1, x.size(-1)}).to(dtype);
  }

  template <typename Body>
  static void by_parts(const at::Tensor& table, const Body& body) {
    constexpr std::int64_t kRows = 4096;
    for (std::int64_t first = 0; first < table.size(0); first += kRows) {
      body(first, std::min(kRows, table.size(0) - first));
    }
  }

  static void narrow_backward(const at::Tensor& of_scores, const at::Tensor& x,
                              const at::Tensor& table, at::ScalarType dtype, bool of_table,
                              variable_list& result) {
    at::Tensor of_x = at::zeros({of_scores.size(0), x.size(-1)}, x.options());
    const at::Tensor rows = by_rows(x, dtype);
    if (of_table) {
      memory::TagScope tag(memory::Tag::gradients);
      result[1] = at::empty_like(table);
    }
    by_parts(table, [&](std::int64_t first, std::int64_t count) {
      const at::Tensor part = of_scores.narrow(1, first, count).to(dtype);
      of_x.add_(product(part, table.narrow(0, first, count).to(dtype), of_x.scalar_type()));
      if (of_table)
        result[1]
            .narrow(0, first, count)
            .copy_(transposed_product(part, rows, table.scalar_type()));
    });
    result[0] = of_x.view(x.sizes());
  }
};

}  // namespace

TableRows rows_of(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding) {
  const variable_list both = RowsOf::apply(table, ids, padding);
  return {both[0], both[1]};
}

at::Tensor table_products(const at::Tensor& x, const at::Tensor& table, const at::Tensor& bias,
                          Precision precision) {
  const auto dtype = precision == Precision::bf16 ? at::kBFloat16 : table.scalar_type();
  return TableProducts::apply(x, table, bias, dtype);
}

}  // namespace pareprop::models
