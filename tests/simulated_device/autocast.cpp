#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "tests/simulated_device/machine.h"

namespace pareprop::testing {

// The lists of operators that torch has for every accelerator. The others keep the type that they
// are given.
void register_autocast() {
  using namespace at;  // NOLINT: torch's macros name types without their namespace
  static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1,
                               __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFallthrough());

  static torch::Library m(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1,
                          __FILE__, __LINE__);
#define PAREPROP_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(PAREPROP_LOWER)
#undef PAREPROP_LOWER
#define PAREPROP_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(PAREPROP_FP32)
#undef PAREPROP_FP32
#define PAREPROP_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(PAREPROP_OPT_DTYPE)
#undef PAREPROP_OPT_DTYPE
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define PAREPROP_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(PAREPROP_PROMOTE)
#undef PAREPROP_PROMOTE
}

}  // namespace pareprop::testing
