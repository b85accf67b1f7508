#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pareprop {

// A table of vectors that a network uses at both of its ends: it begins with rows of the table and
// ends with products with all of it. Autograd would hold the products' gradient of the table, as
// large as the table, during the whole backward pass, make another for the rows and a third for the
// sum. Here the rows are added into the first.
struct TableRows {
  at::Tensor rows;   // (ids.., width)
  at::Tensor table;  // what the products take: the table, as far as autograd knows after the rows
};

// `ids` are Long. Rows of `padding` give the table no gradient.
TableRows rows_of(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding);

}  // namespace pareprop
