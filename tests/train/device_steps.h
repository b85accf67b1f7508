#pragma once

#include <memory>
#include <optional>

#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/optim/adamw.h"
#include "pareprop/train/train_step.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop::train::testing {

// Random batches as data has them: on the CPU.
class HostBatches : public data::Batches {
 public:
  HostBatches(std::shared_ptr<const models::Model> like, std::int64_t batch)
      : like_(std::move(like)), batch_(batch) {}

  std::int64_t per_epoch() const override { return 1000; }
  data::Batch make(std::int64_t number) const override {
    return like_->example(batch_, static_cast<std::uint64_t>(number));
  }

 private:
  const std::shared_ptr<const models::Model> like_;
  const std::int64_t batch_;
};

// Training steps on the simulated device as `train` runs them: batches from pinned memory,
// clipping, AdamW, an average of the weights.
class DeviceSteps {
 public:
  DeviceSteps(const std::string& name, const models::Overrides& change, std::int64_t batch)
      : batch_(batch),
        model_(models::make_model(name, change,
                                  {.device = pareprop::testing::SimulatedDevice::device()})),
        batches_(std::make_shared<HostBatches>(models::make_model(name, change), batch),
                 {.workers = 0}) {}

  models::Model& model() { return *model_; }

  struct Way {
    double clip = 0.1;
    bool inside = false;  // the optimizer steps inside the backward pass
  };
  StepOutcome run() { return run({}); }
  StepOutcome run(const Way& way) {
    constexpr double kRate = 1e-4;
    if (way.inside && !inside_) inside_.emplace(*model_, optimizer_, shares_);
    return run_step({*model_, optimizer_, &average_, buckets_, shares_, nullptr,
                     way.inside ? &*inside_ : nullptr},
                    {.batch = batch_, .clip = way.clip}, feed_, kRate, /*wants_stop=*/false);
  }

 private:
  const std::int64_t batch_;
  const std::shared_ptr<models::Model> model_;
  optim::AdamW optimizer_{models::trained_parameters(*model_)};
  Ema average_{models::trained_parameters(*model_), 0.9};
  const std::unique_ptr<distributed::ProcessGroup> group_ = distributed::make_process_group({});
  distributed::Shares shares_{models::trained_parameters(*model_), *group_};
  distributed::GradientBuckets buckets_{*model_, shares_};
  std::optional<InsideUpdates> inside_;  // from the first step on that is so
  data::Prefetcher batches_;
  BatchFeed feed_{batches_, *model_};
};

}  // namespace pareprop::train::testing
