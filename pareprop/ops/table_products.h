#pragma once

#include <ATen/core/Tensor.h>

#include "pareprop/ops/precision.h"

namespace pareprop {

// (.., width) -> (.., rows of the table): x times the table, transposed, plus the bias, in the type
// of x. In bf16 the products' operands are, part by part of the table, so that no copy of all of it
// is made.
at::Tensor table_products(const at::Tensor& x, const at::Tensor& table, const at::Tensor& bias,
                          Precision precision = Precision::fp32);

struct TableLoss {
  at::Tensor loss;
  at::Tensor scores;  // the products, without gradient
};

// The mean over the rows of x, (rows, width), of the cross entropy of their products with
// `targets`, Long (rows). One autograd node that keeps the scores, and makes no other tensor of
// their size. NaN where there are no rows.
TableLoss table_loss(const at::Tensor& x, const at::Tensor& table, const at::Tensor& bias,
                     const at::Tensor& targets, Precision precision = Precision::fp32);

}  // namespace pareprop
