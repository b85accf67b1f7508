#include "pareprop/ops/sum_order.h"

#include <cstdlib>

// Of MKL; null where libtorch has another BLAS.
extern "C" {
__attribute__((weak)) int mkl_serv_cbwr_set(int mode);
__attribute__((weak)) int mkl_serv_cbwr_get(int what);
}

namespace pareprop {
namespace {

bool is_intel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace

// Note [Sums of MKL]
// On Intel CPUs torch's products are MKL's. Unless told otherwise, MKL splits long sums over its
// threads and begins them where memory is aligned: the bits of a product then depend on the number
// of threads and on addresses, and a recomputation need not have those of the forward pass. In its
// strict mode a sum has one order, and products take some 3 % longer. The mode can only be set
// before MKL computes for the first time. On other CPUs sums have one order as it is, and the
// strict mode would choose slow code.
bool fix_order_of_sums() {
  static const bool fixed = [] {
    if (!is_intel() || mkl_serv_cbwr_set == nullptr || mkl_serv_cbwr_get == nullptr) return true;
    constexpr int kAutomatic = 2, kStrict = 0x10000, kAll = -1;  // MKL_CBWR_... of mkl_types.h
    if (std::getenv("MKL_CBWR") == nullptr) {                    // NOLINT(concurrency-mt-unsafe)
      mkl_serv_cbwr_set(kAutomatic | kStrict);
    }
    return (mkl_serv_cbwr_get(kAll) & kStrict) != 0;
  }();
  return fixed;
}

}  // namespace pareprop
