#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// The mean over the rows of scores (rows, classes) of their cross entropy with `targets`: a class a
// row, Long (rows), or what each class should get, (rows, classes). One autograd node that keeps
// the scores only and makes nothing of their size but their gradient. NaN where there are no rows.
at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& targets);

}  // namespace pareprop
