#include "pareprop/reversible/checkpoint.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <stdexcept>

#include "pareprop/reversible/hooks_aside.h"
#include "pareprop/reversible/tape.h"
#include "pareprop/reversible/version_guard.h"

namespace pareprop {
namespace {

using torch::autograd::variable_list;

struct CheckpointNode : torch::autograd::Node {
  explicit CheckpointNode(const Branch& branch) : module(branch) {}

  Branch module;
  BranchSetting setting;
  at::Tensor x;
  std::vector<at::Tensor> extras;  // those that need gradients are leaves
  std::vector<at::Tensor> leaves;  // extras that need gradients, then trainable parameters
  std::vector<std::string> names;  // of the leaves; empty: an extra argument
  VersionGuard versions;

  variable_list apply(variable_list&& grads) override {
    if (c10::GradMode::is_enabled()) {
      throw std::runtime_error("checkpoint: the gradient of a gradient is not available");
    }
    if (!x.defined()) {
      throw std::runtime_error(
          "checkpoint: backward already ran through this call and freed its input; use "
          "retain_graph to run backward again");
    }
    variable_list result(leaves.size() + 1);
    if (!grads[0].defined()) return result;
    versions.check();
    HooksAside hooks(leaves);
    const Tape tape = record_tape(setting, x, extras).first;
    check_no_unknown_leaf(setting, tape, leaves);
    TapeGradients found = tape_gradients(tape, grads[0], leaves, nullptr, /*keep=*/false);
    result[0] = std::move(found.input);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (!found.others[i].defined() && !names[i].empty()) {
        throw std::runtime_error("checkpoint: parameter '" + names[i] +
                                 "' got no gradient: the module does not use it, or detaches it. "
                                 "Freeze the parameter (requires_grad false)");
      }
      result[i + 1] = std::move(found.others[i]);
    }
    return result;
  }

  void release_variables() override {
    x.reset();
    extras.clear();
    versions.clear();
  }
  std::string name() const override { return "ParepropCheckpoint"; }
};

}  // namespace

at::Tensor checkpoint(const Branch& module, const at::Tensor& x, const CheckpointOptions& options) {
  if (!x.defined()) throw std::invalid_argument("checkpoint: expected a defined input tensor");
  auto node = c10::make_intrusive<CheckpointNode>(module);
  node->setting = {.branch = &node->module,
                   .where = "checkpoint",
                   .random_key = options.random_key,
                   .autocast = AutocastState::of_this_thread(x.device().type(), options.precision),
                   .any_shape = true};
  node->x = x.detach();
  node->versions.add(x, "checkpoint: the input");

  std::vector<at::Tensor> inputs{x};
  for (std::size_t i = 0; i < options.extras.size(); ++i) {
    const at::Tensor& extra = options.extras[i];
    node->versions.add(extra, "checkpoint: extra argument " + std::to_string(i));
    if (!extra.defined() || !extra.requires_grad()) {
      node->extras.push_back(extra);
      continue;
    }
    inputs.push_back(extra);
    node->leaves.push_back(extra.detach().requires_grad_(true));
    node->names.emplace_back();
    node->extras.push_back(node->leaves.back());
  }
  for (const auto& [name, parameter] : module.parameters()) {
    node->versions.add(parameter, "checkpoint: parameter '" + name + "'");
    if (!parameter.requires_grad()) continue;
    inputs.push_back(parameter);
    node->leaves.push_back(parameter);
    node->names.push_back(name);
  }

  at::Tensor y = run_branch(node->setting, x.detach(), node->extras);
  if (!torch::autograd::compute_requires_grad(inputs)) return y;
  // A module that returns its input, or a parameter, would make the node its own input.
  if (y.is_alias_of(x)) y = y.clone();
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace pareprop
