#include "pareprop/optim/sgd.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "pareprop/ops/device_path.h"
#include "pareprop/optim/composed_step.h"
#include "pareprop/optim/decays.h"
#include "pareprop/optim/kernels/over_blocks.h"
#include "pareprop/optim/option_checks.h"

namespace pareprop::optim {

Sgd::Sgd(io::NamedTensors parameters, SgdOptions options)
    : Optimizer(std::move(parameters)), options_(options) {
  check_option("SGD", "momentum", options_.momentum,
               options_.momentum >= 0.0 && options_.momentum < 1.0, "0 or more and less than 1");
  check_option("SGD", "weight decay", options_.weight_decay, options_.weight_decay >= 0.0,
               "0 or more");
  for (const auto& [name, parameter] : this->parameters()) {
    check_parameter("SGD", name, parameter, options_.state);
    State state;
    state.momentum.kind = kept_kind(parameter, options_.state);
    if (options_.momentum > 0.0) state.momentum = zero_moment(parameter, state.momentum.kind);
    const bool rounds = options_.momentum > 0.0 && state.momentum.kind != StateKind::fp32;
    if (rounds || parameter.scalar_type() == at::kBFloat16) {
      state.count = StepCount(options_.seed, name, parameter);
    }
    states_.push_back(std::move(state));
  }
}

void Sgd::update(c10::ArrayRef<std::size_t> which, double learning_rate, double gradient_factor) {
  at::NoGradGuard no_grad;
  for (const std::size_t i : which) {
    const auto& [name, parameter] = parameters()[i];
    if (!parameter.grad().defined()) continue;
    if (parameter.is_meta() && runs_kernels(parameter)) continue;  // they take no memory
    const double decay =
        options_.decay_all || decays(name, parameter) ? options_.weight_decay : 0.0;
    update_one(i, {.gradient_factor = gradient_factor,
                   .weight_decay = decay,
                   .momentum = options_.momentum,
                   .rate = learning_rate * rate_factor(i)});
  }
}

void Sgd::update_one(std::size_t i, const SgdStep& step) {
  const at::Tensor& parameter = parameters()[i].second;
  State& state = states_[i];
  Rounding rounding{};
  if (state.is_rounded()) {
    state.count.begin_step();
    rounding = state.count.rounding();
  }
  const at::Tensor weights = parameter.detach(), gradients = parameter.grad().contiguous();
  if (!runs_kernels(weights) || !weights.is_contiguous() || weights.scalar_type() == at::kDouble) {
    composed_sgd(weights, gradients, state.momentum, step, rounding);
    return;
  }
  visit_types(weights, state.momentum.kind, [&]<typename Weight, typename Kept>(Weight, Kept) {
    const auto run = step_kernels<Weight, Kept>().sgd;
    Weight* const w = weights.mutable_data_ptr<Weight>();
    const Weight* const g = gradients.const_data_ptr<Weight>();
    const auto momentum = data_of<Kept>(state.momentum);
    over_blocks(weights.numel(), [&](std::int64_t first, std::int64_t count) {
      run(w, g, momentum, first, count, step, rounding);
    });
  });
  parameter.unsafeGetTensorImpl()->bump_version();
}

io::NamedTensors Sgd::state() const {
  io::NamedTensors all;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const std::string& name = parameters()[i].first;
    const State& state = states_[i];
    if (state.momentum.values.defined()) add_named(all, "momentum", name, state.momentum);
    if (state.is_rounded()) all.emplace_back("step." + name, state.count.tensor());
  }
  return all;
}

}  // namespace pareprop::optim
