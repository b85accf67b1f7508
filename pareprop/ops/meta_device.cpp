#include "pareprop/ops/meta_device.h"

namespace pareprop {
namespace {
thread_local double left_out = 0.0;
}

double meta_macs() { return left_out; }
void add_meta_macs(double macs) { left_out += macs; }

}  // namespace pareprop
