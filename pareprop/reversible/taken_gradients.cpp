#include "pareprop/reversible/taken_gradients.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <utility>

namespace pareprop {
namespace {

using torch::autograd::PostAccumulateGradHook;

// Autograd calls these also where no gradient arrived.
struct TakeHook : PostAccumulateGradHook {
  explicit TakeHook(TakenGradients::Take taker) : take(std::move(taker)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) return;
    take({.block = TakenGradients::kOutside, .parameters = {parameter}, .gradients = {gradient}});
    gradient.reset();
  }

  TakenGradients::Take take;
};

struct RefuseHook : PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable& parameter) override {
    if (!parameter.grad().defined()) return;
    throw std::runtime_error(
        "updates inside the backward pass: a weight of a block got a second gradient, from outside "
        "of its stack; in C++ leave it out of Network::block_weights(), in Python register it with "
        "the module that uses it there");
  }
};

}  // namespace

TakenGradients::TakenGradients(const Network& network, Take take) : take_(std::move(take)) {
  for (const at::Tensor& parameter : network.block_weights()) {
    of_blocks_.insert(parameter.unsafeGetTensorImpl());
  }
  const std::vector<at::Tensor> weights = network.weights();
  for (const at::Tensor& weight : weights) {
    if (torch::autograd::impl::post_acc_grad_hooks(weight) == nullptr) continue;
    throw std::invalid_argument(
        "updates inside the backward pass: a weight already has a hook that runs after its "
        "gradient is accumulated; remove it first");
  }
  for (const at::Tensor& weight : weights) {
    if (!weight.requires_grad()) continue;
    std::unique_ptr<PostAccumulateGradHook> hook = std::make_unique<RefuseHook>();
    if (!takes(weight)) hook = std::make_unique<TakeHook>(take_);
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::move(hook));
    hooked_.push_back(weight);
  }
}

TakenGradients::~TakenGradients() {
  for (const at::Tensor& weight : hooked_) {
    torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
  }
}

bool TakenGradients::takes(const at::Tensor& parameter) const {
  return of_blocks_.contains(parameter.unsafeGetTensorImpl());
}

}  // namespace pareprop
