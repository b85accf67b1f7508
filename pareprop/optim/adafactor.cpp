#include "pareprop/optim/adafactor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/optim/composed_step.h"
#include "pareprop/optim/decays.h"
#include "pareprop/optim/kernels/factored_kernels.h"
#include "pareprop/optim/option_checks.h"

namespace pareprop::optim {
namespace {

// (rows, columns). With one row or column there would be nothing to gain.
at::Tensor as_matrix(const at::Tensor& parameter) {
  if (parameter.dim() < 2 || parameter.numel() == 0) return parameter.reshape({1, -1});
  return parameter.reshape({parameter.size(0), -1});
}
bool is_factored(const at::Tensor& parameter) {
  const at::Tensor matrix = as_matrix(parameter.detach());
  return matrix.size(0) > 1 && matrix.size(1) > 1;
}

// Moves each value of `average` towards that of `now`, and returns them.
std::vector<double> averaged(const at::Tensor& average, const std::vector<double>& now,
                             double beta2, double eps) {
  std::vector<double> result(now.size());
  float* const kept = average.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < now.size(); ++i) {
    result[i] = beta2 * static_cast<double>(kept[i]) + (1.0 - beta2) * (now[i] + eps);
    kept[i] = static_cast<float>(result[i]);
  }
  return result;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

Adafactor::Adafactor(io::NamedTensors parameters, AdafactorOptions options)
    : Optimizer(std::move(parameters)), options_(options) {
  const auto require = [](const char* name, double value, bool holds, const char* expected) {
    check_option("Adafactor", name, value, holds, expected);
  };
  require("weight decay", options_.weight_decay, options_.weight_decay >= 0.0, "0 or more");
  require("clip", options_.clip, options_.clip > 0.0, "more than 0, such as 1");
  require("decay power", options_.decay_power,
          options_.decay_power > 0.0 && options_.decay_power <= 1.0, "more than 0 and at most 1");
  require("eps", options_.eps, options_.eps > 0.0, "more than 0, such as 1e-30");
  for (const auto& [name, parameter] : this->parameters()) {
    check_parameter("Adafactor", name, parameter, StateKind::fp32);
    const memory::TagScope tag(memory::Tag::optimizer);
    const bool wide = parameter.scalar_type() == at::kDouble;
    const auto kept =
        parameter.options().dtype(wide ? at::kDouble : at::kFloat).requires_grad(false);
    State state{.count = StepCount(options_.seed, name, parameter)};
    if (is_factored(parameter)) {
      const at::Tensor matrix = as_matrix(parameter.detach());
      state.rows = at::zeros({matrix.size(0)}, kept);
      state.columns = at::zeros({matrix.size(1)}, kept);
    } else {
      state.square = at::zeros(parameter.sizes(), kept);
    }
    states_.push_back(std::move(state));
  }
}

void Adafactor::update(c10::ArrayRef<std::size_t> which, double learning_rate,
                       double gradient_factor) {
  at::NoGradGuard no_grad;
  for (const std::size_t i : which) {
    const auto& [name, parameter] = parameters()[i];
    if (!parameter.grad().defined()) continue;
    if (parameter.is_meta() && runs_kernels(parameter)) continue;  // they take no tensors
    State& state = states_[i];
    const auto number = static_cast<double>(state.count.begin_step());
    const double decay =
        options_.decay_all || decays(name, parameter) ? options_.weight_decay : 0.0;
    const double rate = learning_rate * rate_factor(i);
    const Step step{.rate = rate,
                    .gradient_factor = gradient_factor,
                    .weight_factor = 1.0 - rate * decay,
                    .beta2 = 1.0 - std::pow(number, -options_.decay_power),
                    .rounding = state.count.rounding()};
    const at::Tensor weights = parameter.detach(), gradients = parameter.grad().contiguous();
    const bool has_kernels = runs_kernels(weights) && weights.is_contiguous();
    if (!has_kernels || weights.scalar_type() == at::kDouble || weights.numel() == 0) {
      compose(weights, gradients, state, step);
    } else if (weights.scalar_type() == at::kBFloat16) {
      update_matrix<c10::BFloat16>(weights, gradients, state, step);
    } else {
      update_matrix<float>(weights, gradients, state, step);
    }
    parameter.unsafeGetTensorImpl()->bump_version();
  }
}

template <typename Weight>
void Adafactor::update_matrix(const at::Tensor& weights, const at::Tensor& gradients,
                              const State& state, const Step& step) const {
  const at::Tensor matrix = as_matrix(weights);
  const GradientMatrix<Weight> gradient{gradients.const_data_ptr<Weight>(), matrix.size(0),
                                        matrix.size(1)};
  const bool factored = state.rows.defined();
  std::vector<float> row_factors(static_cast<std::size_t>(gradient.rows));
  std::vector<float> column_factors(static_cast<std::size_t>(gradient.columns));
  const auto factors_of = [](const std::vector<double>& squares, double by,
                             std::vector<float>& out) {
    std::transform(squares.begin(), squares.end(), out.begin(),
                   [by](double square) { return static_cast<float>(by / std::sqrt(square)); });
  };
  const auto column_squares =
      averaged(factored ? state.columns : state.square.view({-1}),
               gradient.column_means(step.gradient_factor), step.beta2, options_.eps);
  factors_of(column_squares, 1.0, column_factors);
  if (factored) {
    const auto row_squares =
        averaged(state.rows, gradient.row_means(step.gradient_factor), step.beta2, options_.eps);
    factors_of(row_squares, step.gradient_factor * std::sqrt(mean_of(row_squares)), row_factors);
  } else {
    row_factors.assign(row_factors.size(), static_cast<float>(step.gradient_factor));
  }
  const double squares = gradient.squares(row_factors, column_factors);
  const double size = std::sqrt(squares / static_cast<double>(weights.numel()));
  const auto rate = static_cast<float>(step.rate / std::max(1.0, size / options_.clip));
  for (float& factor : row_factors) factor *= rate;
  gradient.step(row_factors, column_factors, static_cast<float>(step.weight_factor), step.rounding,
                weights.mutable_data_ptr<Weight>());
}

void Adafactor::compose(const at::Tensor& weights, const at::Tensor& gradients, const State& state,
                        const Step& step) const {
  const bool factored = state.rows.defined();
  const at::Tensor& kept = factored ? state.rows : state.square;
  // From here on it becomes the change.
  const at::Tensor gradient =
      as_matrix(gradients).to(kept.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  gradient.mul_(step.gradient_factor);
  at::Tensor square = gradient.square().add_(options_.eps);
  const auto move = [&](const at::Tensor& average, const at::Tensor& now) {
    average.mul_(step.beta2).add_(now.mul(1.0 - step.beta2));
  };
  if (factored) {
    move(state.rows, square.mean(1));
    move(state.columns, square.mean(0));
    square.reset();
    const at::Tensor relative_rows = state.rows.div(state.rows.mean()).rsqrt();
    gradient.mul_(relative_rows.unsqueeze(1)).mul_(state.columns.rsqrt());
  } else {
    move(state.square, square.view(state.square.sizes()));
    square.reset();
    gradient.mul_(as_matrix(state.square).rsqrt());
  }
  const at::Tensor size = gradient.square().mean().sqrt();
  gradient.div_(size.div(options_.clip).clamp_min(1.0)).mul_(step.rate);
  write_weights(
      weights.to(kept.scalar_type()).mul(step.weight_factor).sub_(gradient.view(weights.sizes())),
      step.rounding, weights);
}

io::NamedTensors Adafactor::state() const {
  io::NamedTensors all;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const std::string& name = parameters()[i].first;
    const State& state = states_[i];
    if (state.rows.defined()) {
      all.emplace_back("square_rows." + name, state.rows);
      all.emplace_back("square_columns." + name, state.columns);
    } else {
      all.emplace_back("square." + name, state.square);
    }
    all.emplace_back("step." + name, state.count.tensor());
  }
  return all;
}

}  // namespace pareprop::optim
