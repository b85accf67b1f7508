// verify() on the simulated device, where threads cannot be lanes.

#include <gtest/gtest.h>

#include "pareprop/models/registry.h"
#include "pareprop/sweep/verify.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop {
namespace {

using testing::SimulatedDevice;

TEST(DeviceVerify, EveryModeHoldsOnAnAccelerator) {
  const auto model =
      models::make_model("vit_tiny", {.depths = {3}, .width = 24, .image_size = 32, .classes = 5});
  model->to(SimulatedDevice::device(1));
  for (const Arithmetic arithmetic : {Arithmetic::floating, Arithmetic::exact}) {
    for (const VerifyRow& row : verify(*model, {.arithmetic = arithmetic})) {
      EXPECT_TRUE(row.holds) << name(row.mode) << ": " << complaint(row, Precision::fp32);
    }
  }
}

}  // namespace
}  // namespace pareprop
