#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pareprop {

// A view of the extra arguments of a call (CallOptions::extras).
class ExtraArguments {
 public:
  ExtraArguments() = default;
  ExtraArguments(const std::vector<at::Tensor>& given,  // NOLINT: implicit, as a vector is one
                 std::string_view branch = "a branch")
      : given_(&given), branch_(branch) {}

  std::size_t size() const { return given_ == nullptr ? 0 : given_->size(); }
  bool empty() const { return size() == 0; }
  // Throws std::invalid_argument with the name of the branch if the call has no such argument.
  const at::Tensor& operator[](std::size_t i) const {
    if (i >= size()) missing(i);
    return (*given_)[i];
  }

 private:
  [[noreturn]] void missing(std::size_t i) const;

  const std::vector<at::Tensor>* given_ = nullptr;  // null: none
  std::string_view branch_;                         // who asks
};

// The arguments of a branch besides its stream.
struct BranchCall {
  ExtraArguments extras;
  // False: only the tape is needed. A branch with Branch::skips_output may then leave out work that
  // is only for the output, and return any tensor of the right shape.
  bool output_needed = true;
};

using BranchFunction = std::function<at::Tensor(const at::Tensor& x, const BranchCall& call)>;

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

namespace detail {
// Its forward takes (x, const BranchCall&). A forward that takes anything, as in Sequential, gets
// (x).
template <typename Module>
concept TakesBranchCall = requires(Module& module, const at::Tensor& x, const BranchCall& call) {
  { module.forward(x, call) } -> std::convertible_to<at::Tensor>;
}
&&!requires(Module & module, const at::Tensor& x) { module.template forward<at::Tensor>(x); };
}  // namespace detail

// F or G of a block: pre-norm inside, no residual inside; the output has the shape of the input.
// Any module or callable. A second call must give the same result: use pareprop::dropout and
// drop_path for randomness, and change no state.
class Branch {
 public:
  // A module whose forward takes (x) or (x, const BranchCall&), such as torch::nn::Sequential. Also
  // a module holder, as TORCH_MODULE makes it. A module that uses output_needed has the member
  // `static constexpr bool skips_output = true`.
  template <typename Module>
  requires std::is_base_of_v<torch::nn::Module, Module> Branch(
      std::shared_ptr<Module> module)  // NOLINT: implicit, so that {attention, mlp} is a block
      : function_([raw = module.get()](const at::Tensor& x, const BranchCall& call) {
          if constexpr (detail::TakesBranchCall<Module>) {
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

  // A callable and the parameters that it uses. A parameter that is missing here is an error in the
  // backward pass: its gradient would be lost.
  Branch(BranchFunction function, std::vector<at::Tensor> parameters);

  // The same with names, for messages, and with the buffers that it reads and must not change.
  Branch(BranchFunction function, std::vector<NamedParameter> parameters,
         std::vector<NamedParameter> buffers);

  // A module and a callable that runs it, for a forward with another signature.
  Branch(std::shared_ptr<torch::nn::Module> module, BranchFunction function);

  at::Tensor operator()(const at::Tensor& x, const BranchCall& call) const {
    return function_(x, call);
  }

  // The current ones: freezing or replacing them takes effect at the next call of the stack.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedParameter> buffers() const;

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  bool skips_output() const { return skips_output_; }

 private:
  BranchFunction function_;
  std::vector<NamedParameter> own_parameters_;
  std::vector<NamedParameter> own_buffers_;
  std::shared_ptr<torch::nn::Module> module_;
  bool skips_output_ = false;
};

// y1 = x1 + f(x2), y2 = x2 + g(y1).
struct Block {
  Branch f;
  Branch g;
};

}  // namespace pareprop
