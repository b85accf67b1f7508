#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>

namespace pareprop::testing {

inline bool is_simulated(const at::Tensor& t) {
  return t.defined() && t.device().type() == c10::DeviceType::PrivateUse1;
}

// One operator on the current stream of `device`: what it reads and writes is checked, before its
// arithmetic.
class Launch {
 public:
  Launch(const c10::OperatorHandle& op, c10::Device device);

  // `argument` as in Access. Tensors of the CPU are nobody's.
  void reads(const at::Tensor& t, int argument) const { use(t, argument, false); }
  void writes(const at::Tensor& t, int argument) const { use(t, argument, true); }

  // A fresh tensor of the device with the values of a result of the CPU's kernel, return value
  // `number`. Undefined: undefined.
  at::Tensor result(const at::Tensor& cpu, int number) const;

  // The host waits until it is done, because it wants a value (host_reads) or memory (host_waits).
  void host_reads() const;
  void host_waits() const;
  int actor() const { return actor_; }

 private:
  void use(const at::Tensor& t, int argument, bool write) const;

  const c10::FunctionSchema* schema_;
  c10::Device device_;
  int actor_;
  std::uint64_t time_;
};

// A CPU tensor over the memory of one of the device.
at::Tensor as_cpu(const at::Tensor& t);

// Runs a schema's CPU kernel on tensors of the device.
void run_on_cpu(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);

// Copies between devices, whatever their kinds, as at::Tensor::copy_ does.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking);

}  // namespace pareprop::testing
