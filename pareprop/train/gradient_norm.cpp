#include "pareprop/train/gradient_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace pareprop::train {
namespace {

// A chunk is summed by one thread, in an order of its own; chunks are summed in theirs. Whoever
// gets which chunk, the bits are the same.
constexpr std::int64_t kChunk = 1 << 16;

template <class T>
double chunk_squares(const T* data, std::int64_t count) {
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      const auto value = static_cast<double>(data[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  for (; i < count; ++i) sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
  return sum;
}

template <class T>
double squares(const at::Tensor& gradient) {
  const T* data = gradient.const_data_ptr<T>();
  const std::int64_t count = gradient.numel();
  std::vector<double> sums(static_cast<std::size_t>((count + kChunk - 1) / kChunk));
  at::parallel_for(0, static_cast<std::int64_t>(sums.size()), 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t c = begin; c < end; ++c) {
                       sums[static_cast<std::size_t>(c)] =
                           chunk_squares(data + c * kChunk, std::min(kChunk, count - c * kChunk));
                     }
                   });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

double squared_norm(const at::Tensor& gradient) {
  if (gradient.device().is_cpu() && gradient.scalar_type() == at::kFloat) {
    return squares<float>(gradient.contiguous());
  }
  if (gradient.device().is_cpu() && gradient.scalar_type() == at::kDouble) {
    return squares<double>(gradient.contiguous());
  }
  const auto norm =
      at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kDouble).item<double>();
  return norm * norm;
}

std::vector<double> squared_norms(const io::NamedTensors& parameters) {
  std::vector<double> squares;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = parameter.grad();
    squares.push_back(gradient.defined() ? squared_norm(gradient) : 0.0);
  }
  return squares;
}

GradientNorm norm_of(const io::NamedTensors& parameters, c10::ArrayRef<double> squares) {
  GradientNorm result;
  double sum = 0.0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    // The last one is nearest the loss.
    if (!std::isfinite(squares[i])) result.first_not_finite = parameters[i].first;
    sum += squares[i];
  }
  result.norm = std::sqrt(sum);
  return result;
}

GradientNorms::GradientNorms(const io::NamedTensors& parameters) : parameters_(parameters.size()) {
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor gradient = parameters[i].second.grad();
    if (!gradient.defined()) continue;
    places_.push_back(i);
    gradients.push_back(gradient);
  }
  if (!gradients.empty()) norms_ = at::_foreach_norm(gradients, 2, at::kDouble);
}

std::vector<double> GradientNorms::squares(c10::ArrayRef<double> values) const {
  std::vector<double> squares(parameters_);
  for (std::size_t i = 0; i < values.size(); ++i) squares[places_[i]] = values[i] * values[i];
  return squares;
}

std::string first_not_finite(const io::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!std::isfinite(squared_norm(tensor.detach()))) return name;
  }
  return {};
}

double clip_factor(double norm, double limit) {
  return limit > 0.0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace pareprop::train
