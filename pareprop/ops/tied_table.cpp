#include "pareprop/ops/tied_table.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "pareprop/memory/meter.h"

namespace pareprop {
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

}  // namespace

TableRows rows_of(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding) {
  const variable_list both = RowsOf::apply(table, ids, padding);
  return {both[0], both[1]};
}

}  // namespace pareprop
