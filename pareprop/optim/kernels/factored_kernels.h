#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/optim/kernels/step_kernels.h"

namespace pareprop::optim {

// A matrix of gradients, rows one after another, for Adafactor. On all threads; sums are taken in
// an order that does not depend on their number. Weight is float or bfloat16.
template <typename Weight>
struct GradientMatrix {
  const Weight* values;
  std::int64_t rows, columns;

  // Means of (factor * gradient)^2 over each row and each column.
  std::vector<double> row_means(double factor) const;
  std::vector<double> column_means(double factor) const;

  // The sum of squares of gradient * row_factors * column_factors.
  double squares(const std::vector<float>& row_factors,
                 const std::vector<float>& column_factors) const;

  // weights = weights * weight_factor - gradient * row_factors * column_factors, rounded at random
  // if they are bf16.
  void step(const std::vector<float>& row_factors, const std::vector<float>& column_factors,
            float weight_factor, const Rounding& rounding, Weight* weights) const;
};

extern template struct GradientMatrix<float>;
extern template struct GradientMatrix<c10::BFloat16>;

}  // namespace pareprop::optim
