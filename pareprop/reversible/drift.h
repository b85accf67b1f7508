#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <utility>
#include <vector>

namespace pareprop {

// How far recovered streams were from those of the forward pass.
struct DriftReport {
  // The largest relative deviation of the sampled elements of all recovered streams; 0 if nothing
  // was recovered.
  double worst = 0.0;
  int worst_branch = -1;  // its branch, as in Note [The chain of branches]; -1: none
  // If both streams entered the stack as one tensor: the largest |x1 - x2| of the recovered inputs,
  // which is the reconstruction error over all elements. -1: not known.
  double at_bottom = -1.0;
};

// What a backward pass compared, as numbers that may still be on a device.
struct DriftFindings {
  std::vector<int> branches;        // those compared, from the top
  std::vector<at::Tensor> numbers;  // their deviations, then |x1 - x2| at the bottom where known
  std::vector<at::Tensor> held;     // until the numbers are read: what they are computed from

  // Of the numbers' values.
  DriftReport report(c10::ArrayRef<double> values) const;
  // The topmost branch whose recovery is off by more than `limit` (NaN included), and by how much;
  // the cause is there and not below. {-1, 0}: none.
  std::pair<int, double> first_beyond(c10::ArrayRef<double> values, double limit) const;
};

// Remembers a few elements of every stream value of the forward pass and compares them with the
// recovered ones: enough to see which branch does not compute the same again. Nothing is read, so
// that accelerators are not waited for. Different branches may be used at once.
class DriftProbe {
 public:
  // `together`: all branches are compared by findings(), in few large operators instead of many
  // small ones.
  explicit DriftProbe(int branches, bool together = false);

  void remember(int k, const at::Tensor& u);
  void compare(int k, const at::Tensor& u);
  void compare_bottom(const at::Tensor& x1, const at::Tensor& x2);

  DriftFindings findings() const;
  void forget_comparisons();

 private:
  bool together_;
  std::vector<at::Tensor> samples_;  // by branch; undefined: not remembered
  // By branch: the deviation, or with `together_` the recovered sample; undefined: not compared.
  std::vector<at::Tensor> compared_;
  at::Tensor bottom_;
};

}  // namespace pareprop
