#include "pareprop/ops/kernels/row_kernels.h"

#include <ATen/Version.h>

#include <string>

namespace pareprop {

#define PAREPROP_DECLARE(capability)                       \
  namespace capability {                                   \
  extern const RowKernels<float, float> kFloat;            \
  extern const RowKernels<double, double> kDouble;         \
  extern const RowKernels<float, c10::BFloat16> kBfloat16; \
  }
PAREPROP_DECLARE(DEFAULT)
#ifdef PAREPROP_X86_KERNELS
PAREPROP_DECLARE(AVX2)
PAREPROP_DECLARE(AVX512)
#endif
#undef PAREPROP_DECLARE

namespace {

struct Choice {
  const char* name;
  const RowKernels<float, float>* of_float;
  const RowKernels<double, double>* of_double;
  const RowKernels<float, c10::BFloat16>* of_bfloat16;
};

Choice choose() {
#ifdef PAREPROP_X86_KERNELS
  const std::string capability = at::get_cpu_capability();
  if (capability.starts_with("AVX512")) {
    return {"AVX512", &AVX512::kFloat, &AVX512::kDouble, &AVX512::kBfloat16};
  }
  if (capability == "AVX2") return {"AVX2", &AVX2::kFloat, &AVX2::kDouble, &AVX2::kBfloat16};
#endif
  return {"DEFAULT", &DEFAULT::kFloat, &DEFAULT::kDouble, &DEFAULT::kBfloat16};
}

const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

}  // namespace

template <>
const RowKernels<float, float>& row_kernels() {
  return *choice().of_float;
}
template <>
const RowKernels<double, double>& row_kernels() {
  return *choice().of_double;
}
template <>
const RowKernels<float, c10::BFloat16>& row_kernels() {
  return *choice().of_bfloat16;
}

const char* kernel_capability() { return choice().name; }

}  // namespace pareprop
