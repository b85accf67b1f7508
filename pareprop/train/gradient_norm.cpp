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

GradientNorm gradient_norm(const io::NamedTensors& parameters) {
  GradientNorm result;
  double sum = 0.0;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const double own = squared_norm(gradient);
    if (!std::isfinite(own)) result.first_not_finite = name;  // the last one is nearest the loss
    sum += own;
  }
  result.norm = std::sqrt(sum);
  return result;
}

GradientNorms::GradientNorms(const io::NamedTensors& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.grad().defined()) continue;
    names_.push_back(name);
    gradients.push_back(parameter.grad());
  }
  if (!gradients.empty()) norms_ = at::_foreach_norm(gradients, 2, at::kDouble);
}

GradientNorm GradientNorms::of(c10::ArrayRef<double> values) const {
  GradientNorm result;
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) result.first_not_finite = names_[i];
    sum += values[i] * values[i];
  }
  result.norm = std::sqrt(sum);
  return result;
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
