#include "pareprop/optim/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/optim/composed_step.h"
#include "pareprop/optim/kernels/over_blocks.h"
#include "pareprop/optim/option_checks.h"

namespace pareprop::optim {
namespace {

void check(const AdamWOptions& o) {
  check_option("AdamW", "beta1", o.beta1, o.beta1 >= 0.0 && o.beta1 < 1.0,
               "0 or more and less than 1");
  check_option("AdamW", "beta2", o.beta2, o.beta2 >= 0.0 && o.beta2 < 1.0,
               "0 or more and less than 1");
  check_option("AdamW", "eps", o.eps, o.eps > 0.0, "more than 0, such as 1e-8");
  check_option("AdamW", "weight decay", o.weight_decay, o.weight_decay >= 0.0, "0 or more");
}

AdamWStep numbers_of(const AdamWOptions& o, bool decay, std::int64_t step, double learning_rate,
                     double gradient_factor) {
  const auto count = static_cast<double>(step);
  const double correction = 1.0 - std::pow(o.beta1, count);
  const double square_correction = 1.0 - std::pow(o.beta2, count);
  const double decayed = decay ? learning_rate * o.weight_decay : 0.0;
  return {.weight_factor = static_cast<float>(1.0 - decayed),
          .average_factor = static_cast<float>(o.beta1),
          .average_share = static_cast<float>((1.0 - o.beta1) * gradient_factor),
          .square_factor = static_cast<float>(o.beta2),
          .square_share = static_cast<float>((1.0 - o.beta2) * gradient_factor * gradient_factor),
          .rate = static_cast<float>(learning_rate / correction),
          .square_correction = static_cast<float>(1.0 / std::sqrt(square_correction)),
          .eps = static_cast<float>(o.eps)};
}

}  // namespace

AdamW::AdamW(io::NamedTensors parameters, AdamWOptions options)
    : Optimizer(std::move(parameters)), options_(options) {
  check(options_);
  for (const auto& [name, parameter] : this->parameters()) {
    check_parameter("AdamW", name, parameter, options_.state);
    const StateKind kind = kept_kind(parameter, options_.state);
    State state{.average = zero_moment(parameter, kind),
                .square_average = zero_moment(parameter, kind)};
    if (kind == StateKind::fp32 && parameter.scalar_type() != at::kBFloat16) {
      const memory::TagScope tag(memory::Tag::optimizer);
      state.step = at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false));
    } else {
      state.count = StepCount(options_.seed, name, parameter);
    }
    states_.push_back(std::move(state));
  }
}

void AdamW::update(c10::ArrayRef<std::size_t> which, double learning_rate, double gradient_factor) {
  at::NoGradGuard no_grad;
  std::vector<std::size_t> torchs;
  for (const std::size_t i : which) {
    if (!parameters()[i].second.grad().defined()) continue;
    if (states_[i].is_torchs()) {
      if (!parameters()[i].second.is_meta()) torchs.push_back(i);  // it takes no memory
    } else {
      update_one(i, learning_rate, gradient_factor);
    }
  }
  update_by_torch(torchs, learning_rate, gradient_factor);
}

void AdamW::update_by_torch(c10::ArrayRef<std::size_t> which, double learning_rate,
                            double gradient_factor) {
  // The op has one weight decay and one rate for all that it steps.
  std::map<std::pair<bool, double>, std::vector<std::size_t>> groups;
  for (const std::size_t i : which) {
    const auto& [name, parameter] = parameters()[i];
    groups[{options_.decay_all || decays(name, parameter), rate_factor(i)}].push_back(i);
  }
  for (const auto& [kind, own] : groups) {
    const auto& [decay, factor] = kind;
    std::vector<at::Tensor> weights, gradients, averages, square_averages, steps;
    for (const std::size_t i : own) {
      const at::Tensor& parameter = parameters()[i].second;
      weights.push_back(parameter);
      gradients.push_back(parameter.grad().contiguous());
      averages.push_back(states_[i].average.values);
      square_averages.push_back(states_[i].square_average.values);
      steps.push_back(states_[i].step);
    }
    at::_foreach_add_(steps, 1);
    std::optional<at::Tensor> divisor;  // the op divides
    if (gradient_factor != 1.0) {
      divisor = at::scalar_tensor(1.0 / gradient_factor,
                                  weights.front().options().dtype(at::kFloat).requires_grad(false));
    }
    at::_fused_adamw_(weights, gradients, averages, square_averages, /*max_exp_avg_sqs=*/{}, steps,
                      learning_rate * factor, options_.beta1, options_.beta2,
                      decay ? options_.weight_decay : 0.0, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, divisor);
  }
}

void AdamW::update_one(std::size_t i, double learning_rate, double gradient_factor) {
  const auto& [name, parameter] = parameters()[i];
  if (parameter.is_meta() && runs_kernels(parameter)) return;  // they take no memory
  State& state = states_[i];
  const AdamWStep step =
      numbers_of(options_, options_.decay_all || decays(name, parameter), state.count.begin_step(),
                 learning_rate * rate_factor(i), gradient_factor);
  const Rounding rounding = state.count.rounding();
  const at::Tensor weights = parameter.detach(), gradients = parameter.grad().contiguous();
  if (!runs_kernels(weights) || !weights.is_contiguous()) {
    composed_adamw(weights, gradients, state.average, state.square_average, step, rounding);
    return;
  }
  visit_types(weights, state.average.kind, [&]<typename Weight, typename Kept>(Weight, Kept) {
    const auto run = step_kernels<Weight, Kept>().adamw;
    Weight* const w = weights.mutable_data_ptr<Weight>();
    const Weight* const g = gradients.const_data_ptr<Weight>();
    const auto average = data_of<Kept>(state.average);
    const auto square_average = data_of<Kept>(state.square_average);
    over_blocks(weights.numel(), [&](std::int64_t first, std::int64_t count) {
      run(w, g, average, square_average, first, count, step, rounding);
    });
  });
  parameter.unsafeGetTensorImpl()->bump_version();
}

io::NamedTensors AdamW::state() const {
  io::NamedTensors all;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const std::string& name = parameters()[i].first;
    const State& state = states_[i];
    add_named(all, "exp_avg", name, state.average);
    add_named(all, "exp_avg_sq", name, state.square_average);
    all.emplace_back("step." + name, state.is_torchs() ? state.step : state.count.tensor());
  }
  return all;
}

}  // namespace pareprop::optim
