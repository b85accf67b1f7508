#include "pareprop/ops/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pareprop {

double max_relative_error(const std::vector<at::Tensor>& expected,
                          const std::vector<at::Tensor>& got) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (expected.size() != got.size()) return kInfinite;
  auto norm = [](const at::Tensor& t) { return t.to(at::kDouble).norm().item<double>(); };
  double largest = 0.0, worst = 0.0;
  for (const auto& t : expected) largest = std::max(largest, t.defined() ? norm(t) : 0.0);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].defined() != got[i].defined()) return kInfinite;
    if (!expected[i].defined()) continue;
    if (expected[i].sizes() != got[i].sizes()) return kInfinite;
    const double error = norm(expected[i].to(at::kDouble).sub(got[i].to(at::kDouble)));
    if (std::isnan(error)) return kInfinite;
    worst = std::max(worst, error / std::max({norm(expected[i]), 1e-4 * largest, 1e-300}));
  }
  return worst;
}

bool bit_identical(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& got) {
  return std::equal(expected.begin(), expected.end(), got.begin(), got.end(),
                    [](const at::Tensor& a, const at::Tensor& b) {
                      return a.defined() == b.defined() && (!a.defined() || a.equal(b));
                    });
}

}  // namespace pareprop
