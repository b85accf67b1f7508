#include "pareprop/ops/device_arithmetic.h"

#include <ATen/Context.h>

namespace pareprop {

void set_device_arithmetic(const DeviceArithmetic& arithmetic) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(arithmetic.tf32);
  context.setAllowTF32CuDNN(arithmetic.tf32);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowFP16BF16ReductionMathSDP(false);
}

}  // namespace pareprop
