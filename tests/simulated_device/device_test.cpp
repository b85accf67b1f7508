#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/simulated_device/simulated_device.h"

namespace pareprop::testing {
namespace {

const c10::DeviceType kType = c10::DeviceType::PrivateUse1;

at::Tensor zeros_on(int index) {
  return at::zeros({4}, at::TensorOptions(SimulatedDevice::device(index)));
}

TEST(SimulatedDevice, GuardsChooseDeviceAndStream) {
  const c10::impl::VirtualGuardImpl guard(kType);
  EXPECT_EQ(guard.deviceCount(), SimulatedDevice::kDevices);
  EXPECT_EQ(at::empty({1}, at::TensorOptions(kType)).device().index(), 0);
  const c10::Stream stream = guard.getStreamFromGlobalPool(SimulatedDevice::device(1));
  {
    const c10::DeviceGuard one(SimulatedDevice::device(1));
    EXPECT_EQ(at::empty({1}, at::TensorOptions(kType)).device().index(), 1);
    const c10::StreamGuard on_stream(stream);
    EXPECT_EQ(guard.getStream(SimulatedDevice::device(1)), stream);
    EXPECT_EQ(guard.getStream(SimulatedDevice::device(0)).id(), 0);
  }
  EXPECT_EQ(guard.getDevice().index(), 0);
  EXPECT_EQ(guard.getStream(SimulatedDevice::device(1)).id(), 0);
  EXPECT_THROW(guard.setDevice(SimulatedDevice::device(2)), c10::Error);
  EXPECT_NE(guard.getStreamFromGlobalPool(SimulatedDevice::device(), true),
            guard.getStreamFromGlobalPool(SimulatedDevice::device(), false));
  EXPECT_EQ(SimulatedDevice::device(1).str(), "simulated:1");
}

TEST(SimulatedDevice, AnOperatorRunsOnTheStreamOfItsTensorsDevice) {
  const c10::impl::VirtualGuardImpl guard(kType);
  const c10::Stream stream = guard.getStreamFromGlobalPool(SimulatedDevice::device(1));
  SimulatedDevice::finish();
  const c10::StreamGuard on_stream(stream);
  const c10::DeviceGuard elsewhere(SimulatedDevice::device(0));
  const at::Tensor there = zeros_on(1).add(1.0);
  EXPECT_FALSE(
      SimulatedDevice::is_ordered(stream, guard.getDefaultStream(SimulatedDevice::device(1))));
  SimulatedDevice::finish();
  EXPECT_TRUE(
      SimulatedDevice::is_ordered(stream, guard.getDefaultStream(SimulatedDevice::device(1))));
  EXPECT_TRUE(there.to(SimulatedDevice::device(0)).cpu().equal(at::ones({4})));
}

TEST(SimulatedDevice, CopiesBetweenDevicesOrderBothStreams) {
  const c10::impl::VirtualGuardImpl guard(kType);
  at::Tensor from = zeros_on(0), to = zeros_on(1);
  from.add_(2.0);
  to.copy_(from);
  EXPECT_TRUE(SimulatedDevice::is_ordered(guard.getDefaultStream(SimulatedDevice::device(0)),
                                          guard.getDefaultStream(SimulatedDevice::device(1))));
  EXPECT_NO_THROW(to.add_(1.0));
  EXPECT_NO_THROW(from.zero_());
  EXPECT_TRUE(to.cpu().equal(at::full({4}, 3.0)));
}

TEST(SimulatedDevice, PinnedMemoryLetsCopiesNotBlock) {
  const at::Tensor values = at::arange(4.0).pin_memory();
  EXPECT_TRUE(values.is_pinned());
  EXPECT_TRUE(values.narrow(0, 2, 2).is_pinned());
  EXPECT_FALSE(at::arange(4.0).is_pinned());
  SimulatedDevice::reset_counts();
  const at::Tensor there = values.to(SimulatedDevice::device(), /*non_blocking=*/true);
  const at::Tensor back = at::empty({4}, at::TensorOptions().pinned_memory(true));
  back.copy_(there.mul(2.0), /*non_blocking=*/true);
  EXPECT_EQ(SimulatedDevice::counts().host_reads, 0);
  EXPECT_EQ(SimulatedDevice::counts().host_waits, 0);
  EXPECT_TRUE(std::isnan(back[1].item<float>())) << "nobody has waited for it";
  c10::Event event(kType);
  event.record(c10::impl::VirtualGuardImpl(kType).getStream(SimulatedDevice::device()));
  event.synchronize();
  EXPECT_TRUE(back.equal(values.mul(2.0)));
  EXPECT_EQ(SimulatedDevice::counts().host_waits, 1);
}

TEST(SimulatedDevice, NewMemoryIsNotANumber) {
  const at::Tensor t = at::empty({3}, at::TensorOptions(SimulatedDevice::device()));
  EXPECT_TRUE(t.isnan().all().item<bool>());
  EXPECT_TRUE(at::empty({3}, t.options().dtype(at::kBFloat16)).isnan().all().item<bool>());
}

TEST(SimulatedDevice, CountsBytes) {
  SimulatedDevice::finish();
  SimulatedDevice::empty_cache();
  SimulatedDevice::reset_peaks();
  const auto before = SimulatedDevice::memory(1);
  constexpr std::int64_t kBytes = 1 << 20;
  const at::TensorOptions bytes = at::TensorOptions(SimulatedDevice::device(1)).dtype(at::kByte);
  at::Tensor kept = at::empty({kBytes}, bytes);
  { const at::Tensor gone = at::empty({kBytes}, bytes); }
  auto now = SimulatedDevice::memory(1);
  EXPECT_EQ(now.allocated - before.allocated, kBytes);
  EXPECT_EQ(now.reserved - before.reserved, 2 * kBytes);
  EXPECT_EQ(now.peak_allocated - before.allocated, 2 * kBytes);
  EXPECT_EQ(at::accelerator::getDeviceStats(1).reserved_bytes[0].current, now.reserved);
  const at::Tensor rounded = at::empty({kBytes + 1}, bytes);
  EXPECT_EQ(SimulatedDevice::memory(1).allocated - now.allocated, kBytes + kBytes / 8);
  SimulatedDevice::empty_cache();
  EXPECT_EQ(SimulatedDevice::memory(1).reserved, SimulatedDevice::memory(1).allocated);
  EXPECT_EQ(SimulatedDevice::memory(0).peak_reserved, SimulatedDevice::memory(0).reserved);
}

TEST(SimulatedDevice, EventsOfTimeMeasureIt) {
  const c10::impl::VirtualGuardImpl guard(kType);
  const c10::Stream stream = guard.getDefaultStream(SimulatedDevice::device());
  c10::Event begin(kType, c10::EventFlag::BACKEND_DEFAULT),
      end(kType, c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  zeros_on(0);
  end.record(stream);
  EXPECT_GT(begin.elapsedTime(end), 0.0);
}

}  // namespace
}  // namespace pareprop::testing
