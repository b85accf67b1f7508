#include "pareprop/train/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/models/named_tensors.h"

namespace pareprop::train {
namespace {

void check(const AdamWOptions& o) {
  const auto require = [](bool holds, const std::string& name, double value,
                          const std::string& expected) {
    if (holds) return;
    throw std::invalid_argument("AdamW: " + name + " is " + std::to_string(value) + ", expected " +
                                expected);
  };
  require(o.beta1 >= 0.0 && o.beta1 < 1.0, "beta1", o.beta1, "0 or more and less than 1");
  require(o.beta2 >= 0.0 && o.beta2 < 1.0, "beta2", o.beta2, "0 or more and less than 1");
  require(o.eps > 0.0, "eps", o.eps, "more than 0, such as 1e-8");
  require(o.weight_decay >= 0.0, "weight decay", o.weight_decay, "0 or more");
}

}  // namespace

bool decays(std::string_view name, const at::Tensor& parameter) {
  if (parameter.dim() <= 1) return false;
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const std::string_view word : {"bias", "pos_", "position", "cls_token"}) {
    if (last.find(word) != std::string_view::npos) return false;
  }
  return true;
}

AdamW::AdamW(io::NamedTensors parameters, AdamWOptions options)
    : parameters_(std::move(parameters)), options_(options) {
  check(options_);
  memory::TagScope tag(memory::Tag::optimizer);
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (parameter.scalar_type() != at::kFloat && parameter.scalar_type() != at::kDouble) {
      throw std::invalid_argument("AdamW: parameter " + name + " is " +
                                  at::toString(parameter.scalar_type()) +
                                  ", expected Float; train with float32 weights and let the "
                                  "network compute in bf16 (precision)");
    }
    moments_.push_back({at::zeros_like(parameter, at::MemoryFormat::Contiguous),
                        at::zeros_like(parameter, at::MemoryFormat::Contiguous),
                        at::zeros({}, parameter.options().dtype(at::kFloat))});
    groups_[decays(name, parameter) ? 1 : 0].push_back(i);
  }
}

void AdamW::step(double learning_rate, double gradient_factor) {
  at::NoGradGuard no_grad;
  for (const bool decay : {false, true}) {
    std::vector<at::Tensor> weights, gradients, averages, square_averages, steps;
    for (const std::size_t i : groups_[decay ? 1 : 0]) {
      const at::Tensor& parameter = parameters_[i].second;
      if (!parameter.grad().defined()) continue;
      weights.push_back(parameter);
      gradients.push_back(parameter.grad().contiguous());
      averages.push_back(moments_[i].average);
      square_averages.push_back(moments_[i].square_average);
      steps.push_back(moments_[i].step.add_(1));
    }
    if (weights.empty()) continue;
    std::optional<at::Tensor> divisor;  // the op divides
    if (gradient_factor != 1.0) {
      divisor = at::scalar_tensor(1.0 / gradient_factor,
                                  weights.front().options().dtype(at::kFloat).requires_grad(false));
    }
    at::_fused_adamw_(weights, gradients, averages, square_averages, /*max_exp_avg_sqs=*/{}, steps,
                      learning_rate, options_.beta1, options_.beta2,
                      decay ? options_.weight_decay : 0.0, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, divisor);
  }
}

io::NamedTensors AdamW::state() const {
  io::NamedTensors all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    all.emplace_back("exp_avg." + name, moments_[i].average);
    all.emplace_back("exp_avg_sq." + name, moments_[i].square_average);
    all.emplace_back("step." + name, moments_[i].step);
  }
  return all;
}

void AdamW::load_state(const io::SafetensorsFile& state) {
  models::copy_named(state, this->state(), "the optimizer's state");
}

}  // namespace pareprop::train
