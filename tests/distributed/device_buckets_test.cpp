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

using pareprop::testing::Mutation;
using pareprop::testing::RaceCollector;
using pareprop::testing::SimulatedDevice;

// The other process has the same gradients: their sum is twice what this one has.
class DeviceTwin : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int local_rank() const override { return 0; }
  int world() const override { return 2; }
  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor) override {
    return reduce(tensor, rank());
  }
  std::unique_ptr<Pending> reduce(const at::Tensor& tensor, int owner) override {
    ++sent;
    c10::Event filled(own_.device_type());
    filled.record(current());
    if (notes_blocks && races_with(tensor)) blocks.push_back(SimulatedDevice::counts().blocks);
    filled.block(own_);
    const c10::StreamGuard on_own(own_);
    tensor.mul_(2.0);
    return std::make_unique<Sent>(*this, owner == rank());
  }
  std::unique_ptr<Pending> broadcast(const at::Tensor&, int) override {
    return std::make_unique<Sent>(*this, true);
  }
  void barrier() override {}

  int sent = 0;
  // Streams that were made to wait: their numbers since reset_counts(). Not where they had waited
  // already, because buckets that are filled at the same time need one wait. Nor where another
  // process gets the bucket: it is only freed here, and the next wait comes before its memory is
  // used.
  std::vector<int> blocks;
  bool notes_blocks = false;

 private:
  // Done when what was sent until now has arrived.
  struct Sent : Pending {
    Sent(DeviceTwin& of, bool read_here)
        : group(of), reads(read_here), arrived(of.own_.device_type()) {
      arrived.record(group.own_);
    }
    void wait() override {
      if (reads && group.notes_blocks) group.blocks.push_back(SimulatedDevice::counts().blocks);
      arrived.block(group.current());
    }
    double done_at() const override { return 0.0; }
    DeviceTwin& group;
    bool reads;
    c10::Event arrived;
  };

  // Whether its stream must wait before it reads the tensor.
  bool races_with(const at::Tensor& tensor) const {
    const RaceCollector collector;
    const c10::StreamGuard on_own(own_);
    tensor.sum();
    return !collector.races().empty();
  }
  c10::Stream current() const { return guard_.getStream(SimulatedDevice::device()); }

  const c10::impl::VirtualGuardImpl guard_{c10::DeviceType::PrivateUse1};
  const c10::Stream own_ = guard_.getStreamFromGlobalPool(SimulatedDevice::device());
};

// A network on the device whose gradients are sent in buckets.
struct Sending {
  explicit Sending(Shard shard)
      : model(models::make_model(
            "vit_tiny",
            {.depths = {5}, .width = 24, .image_size = 32, .classes = 5, .drop_path = 0.0})),
        shares((model->to(SimulatedDevice::device()), models::trained_parameters(*model)), twin,
               shard) {}

  void plan(int deferred) const {
    StepPlan plan = model->plan_of(Mode::pareprop);
    plan.stacks.front().deferred = deferred;
    model->set_plan(plan);
  }
  void step(std::shared_ptr<GradientTaker> taker) const {
    const auto pass = std::make_shared<Pass>(1, 1, nullptr, std::move(taker));
    model->loss(model->example(2, 1), {.pass = pass}).backward();
  }
  // Of this process, after a step that sends them; `early`: how many buckets went in the pass.
  std::vector<at::Tensor> sent(int* early = nullptr) {
    const Watch watch = model->stacks().front()->watch({.on_block_gradients = buckets.on_block()});
    twin.sent = 0;
    step(buckets.begin());
    if (early != nullptr) *early = twin.sent;
    buckets.finish();
    return own_gradients();
  }
  std::vector<at::Tensor> own_gradients() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, weight] : shares.own()) all.push_back(weight.grad().cpu());
    drop_gradients(*model);
    return all;
  }

  std::shared_ptr<models::Model> model;
  DeviceTwin twin;
  Shares shares;
  GradientBuckets buckets{*model, shares, /*bucket_bytes=*/20'000};
};

void compare_with_one_process(Shard shard) {
  Sending sending(shard);
  for (const int deferred : {2, 0}) {
    sending.plan(deferred);
    sending.step(nullptr);
    const std::vector<at::Tensor> expected = sending.own_gradients();
    for (int i = 0; i < 2; ++i) {
      int early = 0;
      EXPECT_TRUE(bit_identical(expected, sending.sent(&early)));
      EXPECT_GT(early, 2);
    }
  }
}

// Streams that do not wait where they should, one after the other, are races.
void expect_each_wait_to_matter(Shard shard) {
  Sending sending(shard);
  sending.plan(2);
  const auto blocks = [&] {
    SimulatedDevice::finish();
    SimulatedDevice::reset_counts();
    sending.twin.blocks.clear();
    sending.twin.notes_blocks = true;
    sending.sent();
    sending.twin.notes_blocks = false;
    return sending.twin.blocks;
  };
  blocks();
  const std::vector<int> all = blocks();
  EXPECT_GE(all.size(), 8U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::size_t races = 0;
    {
      const RaceCollector collector;
      SimulatedDevice::finish();
      const Mutation mutation(Mutation::Kind::event_block, all[i]);
      sending.sent();
      EXPECT_TRUE(mutation.happened());
      sending.sent();  // in memory that the first gave back
      races = collector.races().size();
    }
    EXPECT_GT(races, 0U) << "wait " << i << " of " << all.size();
  }
}

TEST(DeviceBuckets, AreFilledAndSentWithoutARace) { compare_with_one_process(Shard::none); }

TEST(DeviceBuckets, OfDividedGradientsAreFilledAndSentWithoutARace) {
  compare_with_one_process(Shard::gradients);
}

TEST(DeviceBuckets, AWaitThatIsLeftOutIsARace) { expect_each_wait_to_matter(Shard::none); }

TEST(DeviceBuckets, AWaitOfDividedGradientsThatIsLeftOutIsARace) {
  expect_each_wait_to_matter(Shard::gradients);
}

}  // namespace
}  // namespace pareprop::distributed
