#include "pareprop/train/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/models/named_tensors.h"

namespace pareprop::train {

Ema::Ema(io::NamedTensors parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  if (!(decay >= 0.0 && decay < 1.0)) {
    throw std::invalid_argument("moving average of the weights: the decay is " +
                                std::to_string(decay) +
                                ", expected 0 or more and less than 1, such as 0.9999");
  }
  memory::TagScope tag(memory::Tag::optimizer);
  for (const auto& [name, parameter] : parameters_) {
    averages_.push_back(parameter.detach().clone());
  }
  updates_ = at::zeros({}, at::kLong);
}

void Ema::update() {
  at::NoGradGuard no_grad;
  const std::int64_t count = *updates_.add_(1).const_data_ptr<std::int64_t>();
  const double n = static_cast<double>(count);
  const double decay = std::min(decay_, n / (n + 9.0));
  if (averages_.empty()) return;
  std::vector<at::Tensor> weights;
  for (const auto& [name, parameter] : parameters_) weights.push_back(parameter);
  at::_foreach_lerp_(averages_, weights, 1.0 - decay);
}

void Ema::restart() {
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(parameters_[i].second);
  updates_.zero_();
}

void Ema::swap() {
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const at::Tensor& weights = parameters_[i].second;
    const at::Tensor kept = weights.detach();
    weights.set_data(averages_[i]);
    averages_[i].set_data(kept);
  }
}

io::NamedTensors Ema::state() const {
  io::NamedTensors all;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    all.emplace_back("average." + parameters_[i].first, averages_[i]);
  }
  all.emplace_back("updates", updates_);
  return all;
}

void Ema::load_state(const io::SafetensorsFile& state) {
  models::copy_named(state, this->state(), "the moving average of the weights");
}

}  // namespace pareprop::train
