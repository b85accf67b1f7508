#include "pareprop/ops/table_products.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/product.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename Body>
void by_parts(std::int64_t all, std::int64_t some, const Body& body) {
  for (std::int64_t first = 0; first < all; first += some) {
    body(first, std::min(some, all - first));
  }
}

// Of the table, in a product: what is made of a part stays in a core's cache.
std::int64_t words_at_a_time(const Tensor& table) {
  return rows_at_a_time(table, table.size(0), 1024);
}

Tensor in_rows(const Tensor& x, at::ScalarType dtype) {
  return x.reshape({-1, x.size(-1)}).to(dtype);
}

Tensor scores_of(const Tensor& x, const Tensor& table, const Tensor& bias, at::ScalarType dtype) {
  if (dtype == table.scalar_type()) return at::linear(x, table, bias);
  auto sizes = x.sizes().vec();
  sizes.back() = table.size(0);
  const Tensor scores = at::empty(sizes, x.options()).flatten(0, -2), rows = in_rows(x, dtype);
  by_parts(table.size(0), words_at_a_time(table), [&](std::int64_t first, std::int64_t count) {
    const Tensor part = table.narrow(0, first, count).to(dtype);
    Tensor out = scores.narrow(1, first, count);
    at::add_out(out, product(rows, part.t(), x.scalar_type()), bias.narrow(0, first, count));
  });
  return scores.view(sizes);
}

// Those of x, the table and its bias, from those of some words' scores after the others.
class TableGradients {
 public:
  TableGradients(const Tensor& x, const Tensor& table, at::ScalarType dtype, bool of_table)
      : table_(table), rows_(in_rows(x, dtype)) {
    of_x_ = at::zeros({rows_.size(0), rows_.size(1)}, x.options());
    memory::TagScope tag(memory::Tag::gradients);
    of_bias_ = at::empty({table.size(0)}, table.options());
    if (of_table) of_table_ = at::empty_like(table);
  }

  // `of_scores`: (rows, words from `first` on).
  void add(std::int64_t first, const Tensor& of_scores) {
    const std::int64_t count = of_scores.size(1);
    const Tensor operand = of_scores.to(rows_.scalar_type());
    const Tensor words = table_.narrow(0, first, count).to(rows_.scalar_type());
    of_x_.add_(product(operand, words, of_x_.scalar_type()));
    Tensor of_bias = of_bias_.narrow(0, first, count);
    at::sum_out(of_bias, of_scores, 0);
    if (!of_table_.defined()) return;
    Tensor of_words = of_table_.narrow(0, first, count);
    if (rows_.scalar_type() == of_words.scalar_type()) {
      at::mm_out(of_words, operand.t(), rows_);
    } else {
      of_words.copy_(transposed_product(operand, rows_, of_words.scalar_type()));
    }
  }

  // With places for what has none.
  variable_list list(at::IntArrayRef sizes_of_x, std::size_t count) const {
    variable_list all{of_x_.view(sizes_of_x), of_table_, of_bias_};
    all.resize(count);
    return all;
  }

 private:
  Tensor table_, rows_, of_x_, of_table_, of_bias_;
};

struct TableProducts : torch::autograd::Function<TableProducts> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& table,
                        const Tensor& bias, at::ScalarType dtype) {
    context->save_for_backward({x, table});
    context->saved_data["dtype"] = dtype;
    return scores_of(x, table, bias, dtype);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &table = saved[1];
    const Tensor of_scores = gradients[0].reshape({-1, table.size(0)});
    TableGradients all(x, table, context->saved_data["dtype"].toScalarType(),
                       context->needs_input_grad(1));
    by_parts(table.size(0), words_at_a_time(table), [&](std::int64_t first, std::int64_t count) {
      all.add(first, of_scores.narrow(1, first, count));
    });
    return all.list(x.sizes(), 4);
  }
};

// The logarithm of the sum of each row's exponentials. These are there for some rows at a time.
Tensor log_sums(const Tensor& scores) {
  constexpr std::int64_t kScoresAtATime = 1 << 20;
  Tensor sums = at::empty({scores.size(0)}, scores.options());
  const std::int64_t some = rows_at_a_time(
      scores, scores.size(0), std::max<std::int64_t>(1, kScoresAtATime / scores.size(1)));
  by_parts(scores.size(0), some, [&](std::int64_t first, std::int64_t count) {
    const Tensor part = scores.narrow(0, first, count), top = part.amax(1, true);
    sums.narrow(0, first, count).copy_(part.sub(top).exp_().sum(1).log_().add_(top.squeeze(1)));
  });
  return sums;
}

struct TableLossFunction : torch::autograd::Function<TableLossFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& table,
                               const Tensor& bias, const Tensor& targets, at::ScalarType dtype) {
    const Tensor scores = scores_of(x, table, bias, dtype), sums = log_sums(scores);
    context->save_for_backward({x, table, scores, sums, targets});
    context->saved_data["dtype"] = dtype;
    context->mark_non_differentiable({scores});
    context->set_materialize_grads(false);  // zeros for the scores would be as large as they are
    return {sums.sub(scores.gather(1, targets.unsqueeze(1)).squeeze(1)).mean(), scores};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &table = saved[1], &scores = saved[2];
    const Tensor sums = saved[3].unsqueeze(1), targets = saved[4].unsqueeze(1);
    const Tensor share = gradients[0].div(static_cast<double>(scores.size(0)));
    TableGradients all(x, table, context->saved_data["dtype"].toScalarType(),
                       context->needs_input_grad(1));
    by_parts(table.size(0), words_at_a_time(table), [&](std::int64_t first, std::int64_t count) {
      Tensor of_scores = scores.narrow(1, first, count).sub(sums).exp_();
      const Tensor place = targets.sub(first), within = place.clamp(0, count - 1);
      const Tensor right = within.eq(place).to(of_scores.scalar_type());  // among these words
      of_scores.scatter_add_(1, within, right.neg()).mul_(share);
      all.add(first, of_scores);
    });
    return all.list(x.sizes(), 5);
  }
};

at::ScalarType operand_type(const Tensor& table, Precision precision) {
  return precision == Precision::bf16 ? at::kBFloat16 : table.scalar_type();
}

}  // namespace

at::Tensor table_products(const at::Tensor& x, const at::Tensor& table, const at::Tensor& bias,
                          Precision precision) {
  return TableProducts::apply(x, table, bias, operand_type(table, precision));
}

TableLoss table_loss(const at::Tensor& x, const at::Tensor& table, const at::Tensor& bias,
                     const at::Tensor& targets, Precision precision) {
  const variable_list both =
      TableLossFunction::apply(x, table, bias, targets, operand_type(table, precision));
  return {both[0], both[1]};
}

}  // namespace pareprop
