#include "pareprop/reversible/drift.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pareprop {
namespace {

constexpr std::int64_t kSamples = 32;

at::Tensor sample(const at::Tensor& u) {
  const std::int64_t count = u.numel();
  // An odd stride walks through all channels and tokens, not always the same ones.
  const std::int64_t stride = std::max<std::int64_t>(1, count / kSamples) | 1;
  return u.reshape({-1}).slice(0, std::min(count - 1, stride / 2), std::nullopt, stride).clone();
}

}  // namespace

DriftProbe::DriftProbe(int branches)
    : samples_(static_cast<std::size_t>(branches)),
      deviations_(static_cast<std::size_t>(branches)) {}

void DriftProbe::remember(int k, const at::Tensor& u) {
  if (u.numel() > 0) samples_[static_cast<std::size_t>(k)] = sample(u);
}

void DriftProbe::compare(int k, const at::Tensor& u) {
  const auto at = static_cast<std::size_t>(k);
  if (!samples_[at].defined()) return;
  const at::Tensor expected = samples_[at].to(at::kDouble);
  const at::Tensor scale = expected.abs().max().clamp_min_(1e-30);
  deviations_[at] = sample(u).to(at::kDouble).sub(expected).abs_().max().div_(scale);
}

void DriftProbe::compare_bottom(const at::Tensor& x1, const at::Tensor& x2) {
  if (x1.numel() == 0) return;
  at::Tensor difference = x1.sub(x2);
  if (!x1.is_meta()) bottom_ = difference.abs_().max();  // there, only what this takes counts
}

DriftReport DriftProbe::report() const {
  DriftReport report;
  for (std::size_t k = deviations_.size(); k-- > 0;) {
    if (!deviations_[k].defined()) continue;
    const double deviation = deviations_[k].item<double>();
    if (report.worst_branch < 0 || !(deviation <= report.worst)) {
      report.worst = deviation;
      report.worst_branch = static_cast<int>(k);
    }
  }
  if (bottom_.defined()) report.at_bottom = bottom_.item<double>();
  return report;
}

std::pair<int, double> DriftProbe::first_beyond(double limit) const {
  for (std::size_t k = deviations_.size(); k-- > 0;) {
    if (!deviations_[k].defined()) continue;
    const double deviation = deviations_[k].item<double>();
    if (!(deviation <= limit)) return {static_cast<int>(k), deviation};
  }
  return {-1, 0.0};
}

void DriftProbe::forget_comparisons() {
  std::fill(deviations_.begin(), deviations_.end(), at::Tensor());
  bottom_.reset();
}

}  // namespace pareprop
