#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "pareprop/optim/adafactor.h"
#include "pareprop/optim/adamw.h"
#include "pareprop/optim/sgd.h"

namespace pareprop::optim {

enum class OptimizerKind { adamw, sgd, adafactor };

std::string_view name(OptimizerKind kind);                  // "adamw", "sgd", "adafactor"
OptimizerKind parse_optimizer_kind(std::string_view text);  // throws std::invalid_argument

// Throws std::invalid_argument for a kind of state that this optimizer cannot have.
void check_suits(OptimizerKind kind, StateKind state);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  StateKind state = StateKind::fp32;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // of AdamW
  double momentum = 0.9;                          // of SGD
  double weight_decay = 0.05;
  bool decay_all = false;  // weight decay for biases, norms and positions too
  std::uint64_t seed = 0;  // of what is rounded at random
};

// Throws what check_suits() and the optimizer's constructor throw.
std::unique_ptr<Optimizer> make_optimizer(io::NamedTensors parameters,
                                          const OptimizerOptions& options);

// An optimizer of these weights, which are on the meta device, to count its bytes: those of its
// state, and those that a step takes.
std::shared_ptr<Optimizer> dry_optimizer(const std::vector<at::Tensor>& weights,
                                         const OptimizerOptions& options);
std::vector<at::Tensor> state_tensors(const Optimizer& optimizer);

}  // namespace pareprop::optim
