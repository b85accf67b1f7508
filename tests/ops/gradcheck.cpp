#include "tests/ops/gradcheck.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

namespace pareprop {
namespace {

at::Tensor projection(const at::Tensor& y) {
  auto generator = at::detail::createCPUGenerator(11);
  return at::randn(y.sizes(), generator, at::TensorOptions(y.scalar_type()));
}

}  // namespace

std::vector<at::Tensor> gradients_of(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) leaves.push_back(input);
  }
  const at::Tensor y = function(inputs);
  auto gradients = torch::autograd::grad({y.mul(projection(y)).sum()}, leaves);
  gradients.push_back(y.detach());
  return gradients;
}

double gradient_error(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                      const std::vector<at::Tensor>& inputs) {
  const auto gradients = gradients_of(function, inputs);
  c10::AutoGradMode no_graph(false);
  auto value = [&] {
    const at::Tensor y = function(inputs);
    return y.mul(projection(y)).sum().item<double>();
  };
  constexpr double kStep = 1e-5;
  double worst = 0.0;
  std::size_t next = 0;
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) continue;
    const at::Tensor gradient = gradients[next++].contiguous();
    double* x = input.mutable_data_ptr<double>();
    double difference = 0.0, largest = 1e-3;
    for (std::int64_t i = 0; i < input.numel(); ++i) {
      const double before = x[i];
      x[i] = before + kStep;
      const double above = value();
      x[i] = before - kStep;
      const double below = value();
      x[i] = before;
      const double expected = (above - below) / (2 * kStep);
      difference = std::max(difference, std::abs(expected - gradient.const_data_ptr<double>()[i]));
      largest = std::max(largest, std::abs(expected));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

}  // namespace pareprop
