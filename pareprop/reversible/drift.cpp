#include "pareprop/reversible/drift.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pareprop {
namespace {

constexpr std::int64_t kSamples = 32;

at::Tensor sample(const at::Tensor& u) {
  const std::int64_t count = u.numel();
  // An odd stride walks through all channels and tokens, not always the same ones.
  const std::int64_t stride = std::max<std::int64_t>(1, count / kSamples) | 1;
  return u.reshape({-1}).slice(0, std::min(count - 1, stride / 2), std::nullopt, stride).clone();
}

// Of samples along the last dimension, relative to the largest expected value.
at::Tensor deviation(const at::Tensor& expected, const at::Tensor& got) {
  const at::Tensor wide = expected.to(at::kDouble);
  const at::Tensor scale = wide.abs().amax(-1).clamp_min_(1e-30);
  return got.to(at::kDouble).sub(wide).abs_().amax(-1).div_(scale);
}

}  // namespace

DriftReport DriftFindings::report(c10::ArrayRef<double> values) const {
  DriftReport report;
  for (std::size_t i = 0; i < branches.size(); ++i) {
    if (report.worst_branch >= 0 && values[i] <= report.worst) continue;
    report.worst = values[i];
    report.worst_branch = branches[i];
  }
  if (values.size() > branches.size()) report.at_bottom = values.back();
  return report;
}

std::pair<int, double> DriftFindings::first_beyond(c10::ArrayRef<double> values,
                                                   double limit) const {
  for (std::size_t i = 0; i < branches.size(); ++i) {
    if (!(values[i] <= limit)) return {branches[i], values[i]};
  }
  return {-1, 0.0};
}

DriftProbe::DriftProbe(int branches, bool together)
    : together_(together),
      samples_(static_cast<std::size_t>(branches)),
      compared_(static_cast<std::size_t>(branches)) {}

void DriftProbe::remember(int k, const at::Tensor& u) {
  if (u.numel() > 0) samples_[static_cast<std::size_t>(k)] = sample(u);
}

void DriftProbe::compare(int k, const at::Tensor& u) {
  const auto at = static_cast<std::size_t>(k);
  if (!samples_[at].defined()) return;
  compared_[at] = together_ ? sample(u) : deviation(samples_[at], sample(u));
}

void DriftProbe::compare_bottom(const at::Tensor& x1, const at::Tensor& x2) {
  if (x1.numel() == 0) return;
  at::Tensor difference = x1.sub(x2);
  if (!x1.is_meta()) bottom_ = difference.abs_().max();  // there, only what this takes counts
}

DriftFindings DriftProbe::findings() const {
  DriftFindings found;
  std::vector<at::Tensor> expected, got;
  for (std::size_t k = compared_.size(); k-- > 0;) {
    if (!compared_[k].defined()) continue;
    found.branches.push_back(static_cast<int>(k));
    expected.push_back(samples_[k]);
    got.push_back(compared_[k]);
  }
  if (!together_) {
    found.numbers = std::move(got);
  } else if (!got.empty()) {
    found.numbers.push_back(deviation(at::stack(expected), at::stack(got)));
    found.held = std::move(got);  // other lanes made them
  }
  if (bottom_.defined()) found.numbers.push_back(bottom_);
  return found;
}

void DriftProbe::forget_comparisons() {
  std::fill(compared_.begin(), compared_.end(), at::Tensor());
  bottom_.reset();
}

}  // namespace pareprop
