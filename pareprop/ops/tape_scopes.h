#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>

// What whoever records a tape, or runs it back, says to the ops of this thread.
namespace pareprop {

// Whether a computation on these inputs becomes part of an autograd graph. Where it does not, an op
// keeps nothing for a backward pass, and may work in place on what it made.
inline bool records(at::TensorList inputs) {
  return c10::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(),
                     [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
}

// Ops that this thread records should keep what their matrix products read and made, and compute
// again in their backward what is cheap to compute from it: GELU, probabilities, weights in the
// type of products. The bits are the same. Compositions of torch's operators keep what those do.
class LeanTapeScope {
 public:
  explicit LeanTapeScope(bool lean);
  ~LeanTapeScope();
  LeanTapeScope(const LeanTapeScope&) = delete;
  LeanTapeScope& operator=(const LeanTapeScope&) = delete;

 private:
  bool previous_;
};
bool tape_is_lean();

// The backward that this thread runs is the only one of its tape: ops may write their results over
// what they saved. Without a scope, or with `consumed` false, they may not.
class ConsumeScope {
 public:
  explicit ConsumeScope(bool consumed);
  ~ConsumeScope();
  ConsumeScope(const ConsumeScope&) = delete;
  ConsumeScope& operator=(const ConsumeScope&) = delete;

 private:
  bool previous_;
};
bool tape_is_consumed();

// For a tensor that was just unpacked in a backward: nobody but that node (and whoever unpacked it)
// holds its memory. What came from outside the op may be written over only then.
bool only_saved_here(const at::Tensor& unpacked);

}  // namespace pareprop
