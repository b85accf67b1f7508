#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pareprop {

// What a branch is called with besides its stream.
struct BranchCall {
  const std::vector<at::Tensor>& extras;  // the extra arguments of the stack's call
  // False: only the tape is wanted. A branch that says so (Branch::skips_output) may leave out the
  // work that only makes its output, and return any tensor of the right shape.
  bool output_needed = true;
};

using BranchFunction = std::function<at::Tensor(const at::Tensor& x, const BranchCall& call)>;

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

// F or G of a block: pre-norm inside, no residual inside; the output has the shape of the input.
// Any module or callable. It must compute the same again when called again: randomness through
// pareprop::dropout and drop_path, no state changed on the way.
class Branch {
 public:
  // A module whose forward takes (x) or (x, const BranchCall&). Also a module holder, as made by
  // TORCH_MODULE. The module says that it honours output_needed by a member
  // `static constexpr bool skips_output = true`.
  template <typename Module>
  requires std::is_base_of_v<torch::nn::Module, Module> Branch(
      std::shared_ptr<Module> module)  // NOLINT: implicit, so that {attention, mlp} is a block
      : function_([raw = module.get()](const at::Tensor& x, const BranchCall& call) {
          if constexpr (std::is_invocable_v<decltype(&Module::forward), Module*, const at::Tensor&,
                                            const BranchCall&>) {
            return raw->forward(x, call);
          } else {
            return raw->forward(x);
          }
        }),
        module_(module) {
    if constexpr (requires { Module::skips_output; }) skips_output_ = Module::skips_output;
  }

  template <typename Module>
  Branch(const torch::nn::ModuleHolder<Module>& holder)  // NOLINT: implicit
      : Branch(holder.ptr()) {}

  // A callable with the parameters it uses. A parameter that it uses but does not name here is an
  // error in the backward pass: its gradient would be lost.
  Branch(BranchFunction function, std::vector<at::Tensor> parameters);

  // A callable around a module, for a forward with another signature.
  Branch(std::shared_ptr<torch::nn::Module> module, BranchFunction function);

  at::Tensor operator()(const at::Tensor& x, const BranchCall& call) const {
    return function_(x, call);
  }

  // As they are now: freezing or replacing them takes effect at the next call of the stack.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedParameter> buffers() const;

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  bool skips_output() const { return skips_output_; }

 private:
  BranchFunction function_;
  std::vector<at::Tensor> own_parameters_;
  std::shared_ptr<torch::nn::Module> module_;
  bool skips_output_ = false;
};

// y1 = x1 + f(x2), y2 = x2 + g(y1).
struct Block {
  Branch f;
  Branch g;
};

}  // namespace pareprop
