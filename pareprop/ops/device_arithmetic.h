#pragma once

namespace pareprop {

// How accelerators multiply. Torch has these settings for the whole process, with defaults that
// have changed between versions; so they are set here, all of them, once and before the first step,
// by whoever chooses a device. The CPU is not touched.
struct DeviceArithmetic {
  // Float32 matrix products and convolutions round their factors to 10 bits of fraction (TF32)
  // where the device can, and are several times as fast; sums are float32 either way.
  bool tf32 = true;
};

// Products of bf16 are summed in float32, whatever `arithmetic` says.
void set_device_arithmetic(const DeviceArithmetic& arithmetic = {});

}  // namespace pareprop
