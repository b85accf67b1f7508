// Gradient buckets on the simulated device, with a group that communicates on a stream of its own
// as NCCL does.

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "pareprop/distributed/gradient_buckets.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/compare.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::distributed {
namespace {

using pareprop::testing::SimulatedDevice;

// The other process has the same gradients: their sum is twice what this one has.
class DeviceTwin : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int local_rank() const override { return 0; }
  int world() const override { return 2; }
  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor) override {
    ++sent;
    wait(own_, guard_.getStream(SimulatedDevice::device()));
    const c10::StreamGuard on_own(own_);
    tensor.mul_(2.0);
    return std::make_unique<Sent>(*this);
  }
  std::unique_ptr<Pending> reduce(const at::Tensor& tensor, int) override {
    return all_reduce(tensor);
  }
  std::unique_ptr<Pending> broadcast(const at::Tensor&, int) override {
    return std::make_unique<Sent>(*this);
  }
  void barrier() override {}

  int sent = 0;

 private:
  struct Sent : Pending {
    explicit Sent(DeviceTwin& of) : group(of) {}
    void wait() override {
      DeviceTwin::wait(group.guard_.getStream(SimulatedDevice::device()), group.own_);
    }
    double done_at() const override { return 0.0; }
    DeviceTwin& group;
  };

  static void wait(const c10::Stream& stream, const c10::Stream& until) {
    c10::Event event(stream.device_type());
    event.record(until);
    event.block(stream);
  }

  const c10::impl::VirtualGuardImpl guard_{c10::DeviceType::PrivateUse1};
  const c10::Stream own_ = guard_.getStreamFromGlobalPool(SimulatedDevice::device());
};

void compare_with_one_process(Shard shard) {
  const auto model = models::make_model(
      "vit_tiny", {.depths = {5}, .width = 24, .image_size = 32, .classes = 5, .drop_path = 0.0});
  model->to(SimulatedDevice::device());
  DeviceTwin twin;
  Shares shares(models::trained_parameters(*model), twin, shard);
  GradientBuckets buckets(*model, shares, /*bucket_bytes=*/20'000);
  for (const int deferred : {2, 0}) {
    StepPlan plan = model->plan_of(Mode::pareprop);
    plan.stacks.front().deferred = deferred;
    model->set_plan(plan);
    const auto step = [&](std::shared_ptr<GradientTaker> taker) {
      const auto pass = std::make_shared<Pass>(1, 1, nullptr, std::move(taker));
      model->loss(model->example(2, 1), {.pass = pass}).backward();
    };
    const auto own_gradients = [&] {
      std::vector<at::Tensor> all;
      for (const auto& [name, weight] : shares.own()) all.push_back(weight.grad().cpu());
      return all;
    };
    step(nullptr);
    const std::vector<at::Tensor> expected = own_gradients();
    drop_gradients(*model);

    const Watch watch = model->stacks().front()->watch({.on_block_gradients = buckets.on_block()});
    for (int i = 0; i < 2; ++i) {
      twin.sent = 0;
      step(buckets.begin());
      const int early = twin.sent;
      buckets.finish();
      EXPECT_GT(early, 2);
      EXPECT_TRUE(bit_identical(expected, own_gradients()));
      drop_gradients(*model);
    }
  }
}

TEST(DeviceBuckets, AreFilledAndSentWithoutARace) { compare_with_one_process(Shard::none); }

TEST(DeviceBuckets, OfDividedGradientsAreFilledAndSentWithoutARace) {
  compare_with_one_process(Shard::gradients);
}

}  // namespace
}  // namespace pareprop::distributed
