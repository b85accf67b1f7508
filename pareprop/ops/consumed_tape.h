#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Says that the backward that this thread runs is the only one of its tape: ops may write their
// results over what they saved. Without a scope, or with `consumed` false, they may not.
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
