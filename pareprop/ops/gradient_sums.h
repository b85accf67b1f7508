#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Note [Products added to sums]
// Where the gradients of several backward passes are added up (a batch in parts), the gradient of a
// weight need not be made first and added then: a product is added to the sum while it is made,
// which costs one read of the sum, instead of a write and three reads of as many bytes. An op that
// can do so asks for the sum, adds to it and returns it in place of the gradient.
class GradientSums {
 public:
  virtual ~GradientSums() = default;

  // What has been added up for this parameter, dense and of its type, or undefined: the gradient is
  // to be made as usual. Who asks adds all of the gradient to it and returns it.
  virtual at::Tensor sum_of(const at::Tensor& parameter) = 0;
};

class GradientSumsScope {
 public:
  explicit GradientSumsScope(GradientSums* sums);  // nullptr: there are none
  ~GradientSumsScope();
  GradientSumsScope(const GradientSumsScope&) = delete;
  GradientSumsScope& operator=(const GradientSumsScope&) = delete;

 private:
  GradientSums* previous_;
};

// Those of this thread's innermost scope, or nullptr.
GradientSums* current_gradient_sums();

}  // namespace pareprop
