#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace pareprop {

// Values of the memory that transposed_pair_product() works in, for `rows` and `n` as there.
std::int64_t pair_product_scratch(std::int64_t rows, std::int64_t n);

// c (m, n) = a^T b, where a is (rows, m), b (rows, n) and all are dense: the sum over rows of outer
// products, as in the gradient of a weight. Not rounded on the way; the same bits whatever the
// number of threads. With `add` it is added to c. REQUIRES: has_pair_products().
void transposed_pair_product(const c10::BFloat16* a, const c10::BFloat16* b, std::int64_t rows,
                             std::int64_t m, std::int64_t n, c10::BFloat16* scratch, bool add,
                             float* c);

}  // namespace pareprop
