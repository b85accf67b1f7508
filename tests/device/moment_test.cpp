#include "pareprop/device/moment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace pareprop {
namespace {

TEST(Moment, OnTheCpuIsNow) {
  const Moment begin(c10::kCPU);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Moment end(c10::kCPU);
  EXPECT_GE(end.ms_since(begin), 20.0);
  EXPECT_EQ(begin.ms_since(begin), 0.0);
  const MomentClock clock(c10::kCPU);
  EXPECT_NEAR(clock.seconds(end) - clock.seconds(begin), end.ms_since(begin) / 1e3, 1e-6);
}

}  // namespace
}  // namespace pareprop
