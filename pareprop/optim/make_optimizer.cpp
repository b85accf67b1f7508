#include "pareprop/optim/make_optimizer.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace pareprop::optim {

std::string_view name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw:
      return "adamw";
    case OptimizerKind::sgd:
      return "sgd";
    case OptimizerKind::adafactor:
      return "adafactor";
  }
  return "?";
}

OptimizerKind parse_optimizer_kind(std::string_view text) {
  for (const OptimizerKind kind :
       {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::adafactor}) {
    if (text == name(kind)) return kind;
  }
  throw std::invalid_argument("expected adamw, sgd or adafactor, got '" + std::string(text) + "'");
}

void check_suits(OptimizerKind kind, StateKind state) {
  if (kind != OptimizerKind::adafactor || state == StateKind::fp32) return;
  throw std::invalid_argument("expected fp32 with adafactor, whose state is next to nothing, got " +
                              std::string(name(state)));
}

std::unique_ptr<Optimizer> make_optimizer(io::NamedTensors parameters, const OptimizerOptions& o) {
  switch (o.kind) {
    case OptimizerKind::adamw:
      return std::make_unique<AdamW>(std::move(parameters),
                                     AdamWOptions{.beta1 = o.beta1,
                                                  .beta2 = o.beta2,
                                                  .eps = o.eps,
                                                  .weight_decay = o.weight_decay,
                                                  .decay_all = o.decay_all,
                                                  .state = o.state,
                                                  .seed = o.seed});
    case OptimizerKind::sgd:
      return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.momentum = o.momentum,
                                                                     .weight_decay = o.weight_decay,
                                                                     .decay_all = o.decay_all,
                                                                     .state = o.state,
                                                                     .seed = o.seed});
    case OptimizerKind::adafactor:
      check_suits(o.kind, o.state);
      return std::make_unique<Adafactor>(
          std::move(parameters),
          AdafactorOptions{
              .weight_decay = o.weight_decay, .decay_all = o.decay_all, .seed = o.seed});
  }
  throw std::invalid_argument("optimizer: expected a kind that there is");
}

std::shared_ptr<Optimizer> dry_optimizer(const std::vector<at::Tensor>& weights,
                                         const OptimizerOptions& options) {
  io::NamedTensors named;
  for (const at::Tensor& weight : weights) {
    named.emplace_back("weight " + std::to_string(named.size()), weight);
  }
  return make_optimizer(std::move(named), options);
}

std::vector<at::Tensor> state_tensors(const Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (auto& [name, tensor] : optimizer.state()) tensors.push_back(std::move(tensor));
  return tensors;
}

}  // namespace pareprop::optim
