#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string_view>

namespace pareprop {

// The arithmetic of branches and of what lies between stacks. Streams and weights are float32 with
// fp32 and bf16, float64 with fp64.
enum class Precision { fp32, bf16, fp64 };

std::string_view name(Precision precision);
Precision parse_precision(std::string_view text);  // throws std::invalid_argument

// dtype of streams and weights.
c10::ScalarType stream_dtype(Precision precision);

// Which autocast a computation ran under, so that its recomputation runs under the same.
struct AutocastState {
  bool enabled = false;
  c10::ScalarType dtype = c10::ScalarType::BFloat16;

  // What is in force on this thread for `device`; bf16 asks for more. Devices that torch knows no
  // autocast for compute in the type of their tensors, and bf16 is a std::invalid_argument there;
  // the meta device has a state of ours.
  static AutocastState of_this_thread(c10::DeviceType device, Precision precision);
};

// What an op on `x` computes in: that of the autocast in force, else x's own.
c10::ScalarType compute_dtype(const at::Tensor& x);

// Sets autocast for the thread until the scope ends, without its cache of weight copies.
// Note [No weight-copy cache]
// Autocast keeps the low-precision copy of a weight for reuse within its outermost scope. A copy
// made while gradients were off has no graph, and a recomputation that reused it would leave the
// weight without gradient, silently. So the cache is off wherever branches run.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, const AutocastState& state);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  AutocastState previous_;
  bool previous_cache_;
};

}  // namespace pareprop
