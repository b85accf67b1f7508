#include "pareprop/ops/gradient_sums.h"

namespace pareprop {
namespace {
thread_local GradientSums* current_sums = nullptr;
}

GradientSumsScope::GradientSumsScope(GradientSums* sums) : previous_(current_sums) {
  current_sums = sums;
}
GradientSumsScope::~GradientSumsScope() { current_sums = previous_; }

GradientSums* current_gradient_sums() { return current_sums; }

}  // namespace pareprop
