#pragma once

#include <ATen/core/Generator.h>

namespace pareprop::testing {

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

// The CPU's generator that draws for one of the device.
at::Generator drawing_generator(const at::Generator& generator);

}  // namespace pareprop::testing
