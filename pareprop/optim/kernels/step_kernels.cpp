#include "pareprop/optim/kernels/step_kernels.h"

#include <string_view>

#include "pareprop/ops/kernels/row_kernels.h"

namespace pareprop::optim {

#define PAREPROP_DECLARE(capability)           \
  namespace capability {                       \
  template <typename Weight, typename State>   \
  const StepKernels<Weight, State>& kernels(); \
  }
PAREPROP_DECLARE(DEFAULT)
#ifdef PAREPROP_X86_KERNELS
PAREPROP_DECLARE(AVX2)
PAREPROP_DECLARE(AVX512)
#endif
#undef PAREPROP_DECLARE

template <typename Weight, typename State>
const StepKernels<Weight, State>& step_kernels() {
#ifdef PAREPROP_X86_KERNELS
  static const std::string_view capability = kernel_capability();
  if (capability == "AVX512") return AVX512::kernels<Weight, State>();
  if (capability == "AVX2") return AVX2::kernels<Weight, State>();
#endif
  return DEFAULT::kernels<Weight, State>();
}

#define PAREPROP_INSTANTIATE(Weight)                                 \
  template const StepKernels<Weight, float>& step_kernels();         \
  template const StepKernels<Weight, c10::BFloat16>& step_kernels(); \
  template const StepKernels<Weight, std::uint8_t>& step_kernels();
PAREPROP_INSTANTIATE(float)
PAREPROP_INSTANTIATE(c10::BFloat16)
#undef PAREPROP_INSTANTIATE

}  // namespace pareprop::optim
