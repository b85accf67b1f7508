// Traces of an accelerator have the times at which it worked: the simulated device with operators
// that take longer than the host needs to issue them.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "pareprop/device/moment.h"
#include "pareprop/models/registry.h"
#include "pareprop/trace/recorder.h"
#include "pareprop/trace/summary.h"
#include "pareprop/train/record_step.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::train {
namespace {

using pareprop::testing::SimulatedDevice;

constexpr double kOperator = 1e-3;  // seconds

// While it lives, all operators take this time.
class SlowDevice {
 public:
  SlowDevice() {
    SimulatedDevice::set_operator_time(
        std::chrono::microseconds(static_cast<int>(kOperator * 1e6)));
  }
  ~SlowDevice() {
    SimulatedDevice::set_operator_time(std::chrono::microseconds(0));
    SimulatedDevice::finish();
  }
};

TEST(DeviceTrace, MomentsAreThoseOfTheDevice) {
  const SlowDevice slow;
  const at::Tensor x = at::zeros({4}, at::TensorOptions(SimulatedDevice::device()));
  const Moment before(x.device());
  const double issued = TraceRecorder::now();
  for (int i = 0; i < 20; ++i) x.add_(1.0);
  const Moment after(x.device());
  EXPECT_LT(TraceRecorder::now() - issued, 20 * kOperator) << "the host does not wait";
  const MomentClock clock(x.device());
  EXPECT_NEAR(clock.seconds(after) - clock.seconds(before), 20 * kOperator, kOperator);
  EXPECT_NEAR(clock.seconds(after), TraceRecorder::now(), 20 * kOperator);
  EXPECT_GE(clock.seconds(before), issued - kOperator);
}

StepTrace trace_of(Mode mode) {
  const auto model = models::make_model(
      "vit_tiny", {.depths = {4}, .width = 48, .image_size = 32, .drop_path = 0.0},
      {.device = SimulatedDevice::device()});
  const SlowDevice slow;
  return record_step(*model, {.plan = model->plan_of(mode), .batch = 2, .steps = 1}).trace;
}

TEST(DeviceTrace, MemoryIsThatOfTheDevice) {
  const StepTrace trace = trace_of(Mode::pareprop);
  ASSERT_EQ(trace.tags.size(), 2U);
  ASSERT_FALSE(trace.samples.empty());
  const std::int64_t reserved = SimulatedDevice::as_cuda().peak_reserved;
  std::int64_t most = 0;
  for (const MemorySample& sample : trace.samples) {
    EXPECT_EQ(sample.bytes.at(0), sample.total);
    EXPECT_LE(sample.total + sample.bytes.at(1), reserved);
    most = std::max(most, sample.total);
  }
  EXPECT_GT(most, 0);
  EXPECT_EQ(most, summarise(trace).sampled_peak_bytes);
}

// The host issues one task after the other: by its clock none would run beside another.
TEST(DeviceTrace, ShowsTheOverlapOfStreams) {
  const StepTrace trace = trace_of(Mode::pareprop);
  const Overlap overlap = summarise(trace).overlap;
  EXPECT_GT(overlap.recover, 4 * kOperator);
  EXPECT_GT(overlap.share(), 0.5);
  EXPECT_EQ(summarise(trace_of(Mode::reprop)).overlap.share(), 0.0);
}

TEST(DeviceTrace, TasksTakeTheTimeOfTheirOperatorsAndFollowEachOther) {
  const StepTrace trace = trace_of(Mode::pareprop);
  std::map<int, double> lane_ends;
  int tasks = 0;
  double optimizer = 0.0;
  for (const StepSpan& span : trace.spans) {  // in the order in which they begin
    EXPECT_GE(span.begin, trace.begin);
    EXPECT_LE(span.end, trace.end);
    if (span.kind == StepKind::optimizer) optimizer += span.length();
    if (!is_task(span.kind)) continue;
    ++tasks;
    EXPECT_GE(span.length(), 0.0);
    EXPECT_GE(span.begin, lane_ends[span.lane] - 1e-6) << span.name;
    lane_ends[span.lane] = span.end;
    if (span.kind != StepKind::weight_gradient) {
      EXPECT_GE(span.length(), 4 * kOperator) << span.name;
    }
  }
  EXPECT_GE(tasks, 16);
  EXPECT_GE(optimizer, 5 * kOperator);
}

}  // namespace
}  // namespace pareprop::train
