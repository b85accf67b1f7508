// Memory and reads of training steps on the simulated device (docs/simulated-device.md).

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "pareprop/data/prefetch.h"
#include "pareprop/distributed/process_group.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/optim/adamw.h"
#include "pareprop/train/train_step.h"
#include "tests/random_cases.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::train {
namespace {

using pareprop::testing::SimulatedDevice;

struct Trained {
  const char* model;
  models::Overrides overrides;
  std::int64_t batch;
};

// Networks that are as wide as they are trained, so that weights, gradients and AdamW's moments
// have their usual share.
const std::vector<Trained>& families() {
  static const std::vector<Trained> all = {
      {"vit_small", {}, 4},
      {"swin_tiny", {}, 4},
      {"mvit_tiny", {}, 2},
      {"roberta_base", {.depths = {4}, .length = 128, .vocabulary = 5000}, 4}};
  return all;
}

// Examples of a network, on the CPU.
class Examples final : public data::Batches {
 public:
  Examples(std::shared_ptr<const models::Model> model, std::int64_t batch)
      : model_(std::move(model)), batch_(batch) {}
  std::int64_t per_epoch() const override { return 100; }
  data::Batch make(std::int64_t number) const override {
    return model_->example(batch_, static_cast<std::uint64_t>(number));
  }

 private:
  std::shared_ptr<const models::Model> model_;
  std::int64_t batch_;
};

struct Seen {
  SimulatedDevice::Memory memory;  // from nothing on, as CUDA's allocator would count it
  int host_reads = 0;              // of the last step
};

// Steps as `train` runs them.
Seen train_steps(const Trained& what, Mode mode) {
  SimulatedDevice::finish();
  SimulatedDevice::empty_cache();
  SimulatedDevice::reset_peaks();
  const auto before = SimulatedDevice::as_cuda();
  models::Overrides shallow = what.overrides;  // for its examples
  shallow.depths = {1};
  const std::shared_ptr<models::Model> cpu = models::make_model(what.model, shallow);
  const auto model =
      models::make_model(what.model, what.overrides, {.device = SimulatedDevice::device()});
  model->set_mode(mode);
  model->train();
  optim::AdamW optimizer(models::trained_parameters(*model));
  const auto group = distributed::make_process_group({});
  distributed::Shares shares(optimizer.parameters(), *group);
  distributed::GradientBuckets buckets(*model, shares);
  data::Prefetcher batches(std::make_shared<Examples>(cpu, what.batch), {.workers = 0});
  BatchFeed feed(batches, *model);
  const StepParts parts{.model = *model,
                        .optimizer = optimizer,
                        .average = nullptr,
                        .buckets = buckets,
                        .shares = shares};
  Seen seen;
  for (int step = 0; step < 2; ++step) {
    SimulatedDevice::reset_counts();
    run_step(parts, {.batch = what.batch}, feed, 1e-4, false);
    seen.host_reads = SimulatedDevice::counts().host_reads;
  }
  seen.memory = SimulatedDevice::as_cuda();
  seen.memory.peak_allocated -= before.allocated;
  seen.memory.peak_reserved -= before.reserved;
  return seen;
}

TEST(DeviceMemory, OverlapReservesLittleMoreThanRecoveryAlone) {
  const int count = testing::case_count(2);
  for (const Trained& what : families()) {
    if (&what - families().data() == count) break;
    SCOPED_TRACE(what.model);
    const Seen reprop = train_steps(what, Mode::reprop),
               pareprop = train_steps(what, Mode::pareprop);
    const double ratio = static_cast<double>(pareprop.memory.peak_reserved) /
                         static_cast<double>(reprop.memory.peak_reserved);
    std::cout << what.model << ", batch " << what.batch << ": reprop "
              << (reprop.memory.peak_allocated >> 20) << " MiB allocated, "
              << (reprop.memory.peak_reserved >> 20) << " reserved; pareprop "
              << (pareprop.memory.peak_allocated >> 20) << " and "
              << (pareprop.memory.peak_reserved >> 20) << ": " << ratio << " times\n";
    EXPECT_LE(ratio, 1.25);
    EXPECT_EQ(reprop.host_reads, 1);
    EXPECT_EQ(pareprop.host_reads, 1);
  }
}

}  // namespace
}  // namespace pareprop::train
