#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace pareprop {

// How far recovered streams were from those of the forward pass.
struct DriftReport {
  // Largest relative deviation over the sampled elements of all recovered streams; 0 when nothing
  // was recovered.
  double worst = 0.0;
  int worst_branch = -1;  // where, as in Note [The chain of branches]; -1: nowhere
  // When both streams entered the stack as one tensor: largest |x1 - x2| of the recovered inputs,
  // over all their elements. It *is* the reconstruction error, for free. -1: not known.
  double at_bottom = -1.0;
};

// Remembers a few elements of every stream value of the forward pass and compares them with the
// recovered ones: enough to see which branch does not compute the same again. Nothing is read back
// before report(), so that accelerators are not waited for. Different branches may be used at once.
class DriftProbe {
 public:
  explicit DriftProbe(int branches);

  void remember(int k, const at::Tensor& u);
  void compare(int k, const at::Tensor& u);
  void compare_bottom(const at::Tensor& x1, const at::Tensor& x2);

  DriftReport report() const;
  // The topmost branch whose recovery is off by more than `limit` (NaN included), and by how much;
  // the cause is there and not below. {-1, 0}: none.
  std::pair<int, double> first_beyond(double limit) const;
  void forget_comparisons();

 private:
  std::vector<at::Tensor> samples_;     // by branch; undefined: not remembered
  std::vector<at::Tensor> deviations_;  // by branch, one number each; undefined: not compared
  at::Tensor bottom_;
};

}  // namespace pareprop
