#include "pareprop/train/record_step.h"

#include <limits>
#include <stdexcept>

#include "pareprop/models/named_tensors.h"
#include "pareprop/optim/adamw.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/trace/recorder.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/train_step.h"

namespace pareprop::train {
namespace {

// Random content of the shape that the network takes.
class ExampleBatches : public data::Batches {
 public:
  ExampleBatches(const models::Model& model, std::int64_t batch, std::uint64_t seed)
      : model_(model), batch_(batch), seed_(seed) {}

  std::int64_t per_epoch() const override { return std::numeric_limits<std::int64_t>::max(); }
  data::Batch make(std::int64_t number) const override {
    return model_.example(batch_, seed_ + static_cast<std::uint64_t>(number));
  }

 private:
  const models::Model& model_;
  const std::int64_t batch_;
  const std::uint64_t seed_;
};

void check(const RecordOptions& options) {
  const auto at_least_one = [](const char* what, std::int64_t got) {
    if (got >= 1) return;
    throw std::invalid_argument(std::string(what) + ": expected 1 or more, got " +
                                std::to_string(got));
  };
  at_least_one("steps", options.steps);
  at_least_one("batch", options.batch);
  at_least_one("parts", options.parts);
  if (options.batch % options.parts == 0) return;
  throw std::invalid_argument("parts: expected a divisor of the batch of " +
                              std::to_string(options.batch) + ", got " +
                              std::to_string(options.parts));
}

}  // namespace

RecordedStep record_step(models::Model& model, const RecordOptions& options) {
  // Small enough that random labels do no harm.
  constexpr double kLearningRate = 1e-5;
  check(options);
  model.train();
  const NetworkRestored restored(model);
  const Mode usual = model.plain() ? Mode::stored : Mode::pareprop;
  model.set_numerics(options.precision, options.arithmetic);
  model.set_plan(options.plan ? *options.plan : model.plan_of(usual));
  TraceRecorder recorder(model);
  optim::AdamW optimizer(models::trained_parameters(model));
  const auto group = distributed::make_process_group({});
  distributed::Shares shares(optimizer.parameters(), *group);
  distributed::GradientBuckets buckets(model, shares);
  data::Prefetcher batches(std::make_shared<ExampleBatches>(model, options.batch, options.seed),
                           {.workers = 0});
  BatchFeed feed(batches, model, options.batch / options.parts);
  RecordedStep traced;
  for (int step = 1; step <= options.steps; ++step) {
    const bool last = step == options.steps;
    if (last) {
      reset_peaks_on(device_of(model));
      recorder.begin(options.title);
    }
    const StepOutcome outcome =
        run_step({model, optimizer, nullptr, buckets, shares, last ? &recorder : nullptr},
                 {.batch = options.batch, .seed = options.seed}, feed, kLearningRate, false);
    if (!outcome.not_finite.empty()) {
      throw std::runtime_error("step " + std::to_string(step) + ": " + outcome.not_finite +
                               " is not finite; try another --seed or --precision fp32");
    }
    traced.loss = outcome.loss;
  }
  traced.trace = recorder.finish();
  traced.memory = usage_of(model, Trained{model, shares, optimizer}.state_bytes());
  return traced;
}

}  // namespace pareprop::train
