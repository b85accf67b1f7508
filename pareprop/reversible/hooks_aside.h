#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace torch::autograd {
struct FunctionPreHook;
}

namespace pareprop {

// Takes the user's hooks off leaves while gradients inside one node are computed: autograd would
// run them there, and once more where the node's own gradient arrives. Puts them back at the end of
// the scope.
class HooksAside {
 public:
  explicit HooksAside(const std::vector<at::Tensor>& leaves);
  ~HooksAside();
  HooksAside(const HooksAside&) = delete;
  HooksAside& operator=(const HooksAside&) = delete;

 private:
  std::vector<std::pair<at::Tensor, std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>>>
      aside_;
};

}  // namespace pareprop
