#include "cli/digits_training.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "cli/auto_plan.h"
#include "pareprop/device/moment.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/reversible/torch_lanes.h"
#include "pareprop/sweep/quantile.h"
#include "pareprop/train/evaluate.h"
#include "pareprop/train/learner.h"
#include "pareprop/train/learning_rate.h"
#include "pareprop/train/model_for_data.h"
#include "pareprop/train/train_step.h"
#include "pareprop/train/training_data.h"

namespace pareprop::cli {
namespace {

// Steps whose memory is not measured: the optimizer makes its state in the first.
constexpr int kWarmUp = 2;
constexpr std::size_t kLossWindow = 10;

train::TrainConfig config_of(const DigitsTraining& options) {
  train::TrainConfig config;
  config.model = kDigitsModel;
  config.data = "digits";
  config.augment = "none";
  // The models' initial weights suit wide networks; 64 channels learn faster from 1 / sqrt(64).
  config.initial_std = 0.125;
  config.precision = name(options.precision);
  config.exact = true;
  config.batch = options.batch;
  config.steps = options.steps;
  config.seed = options.seed;
  config.learning_rate = 3e-3;
  config.workers = 0;
  return config;
}

class DigitsRun {
 public:
  explicit DigitsRun(const DigitsTraining& options)
      : options_(options),
        config_(config_of(options)),
        group_(distributed::make_process_group({})),
        data_(train::open_data(config_)),
        learner_(train::make_learner(config_, train::choices_of(config_), data_, options.device,
                                     *group_)),
        model_(learner_.model),
        batches_(train::make_batches(config_, data_, *model_, {})) {
    model_->train();
    model_->set_plan(options.mode == Mode::automatic ? planned() : model_->plan_of(options.mode));
  }

  DigitsResult run(const std::function<void(int)>& on_step) {
    train(on_step);
    result_.accuracy = train::evaluate(*model_, batches_.test, *group_, {.workers = 0}).accuracy;
    time_steps();
    return std::move(result_);
  }

 private:
  StepPlan planned() {
    plan::Planner planner = make_planner({.model = kDigitsModel, .overrides = {}},
                                         {.batch = options_.batch,
                                          .device = options_.device,
                                          .precision = options_.precision,
                                          .arithmetic = model_->options().arithmetic,
                                          .only_activations = true});
    planner.use(plan::measure_step_times(*model_, options_.batch, /*overlapped=*/true));
    return planner.plan_step(options_.activation_budget).step;
  }

  void train(const std::function<void(int)>& on_step) {
    constexpr int kLanes = 2;
    const int threads = std::max(1, at::get_num_threads() / kLanes);
    const IntraOpThreads scope(threads);
    if (options_.device.is_cpu()) {
      model_->set_executor(std::make_shared<TorchCpuLanes>(kLanes, threads));
    }
    distributed::GradientBuckets buckets(*model_, *learner_.shares);
    data::Prefetcher batches(batches_.train, {.workers = 0});
    train::BatchFeed feed(batches, *model_);
    const train::LearningRate rate{
        .peak = config_.learning_rate, .warmup = options_.steps / 10, .total = options_.steps};
    for (int step = 0; step < options_.steps; ++step) {
      if (step == std::min(kWarmUp, options_.steps - 1)) reset_peaks_on(options_.device);
      const train::StepOutcome outcome =
          train::run_step({*model_, *learner_.optimizer, nullptr, buckets, *learner_.shares},
                          {.batch = options_.batch, .clip = config_.clip, .seed = options_.seed},
                          feed, rate.at(step), false);
      if (!outcome.not_finite.empty()) {
        throw std::runtime_error("step " + std::to_string(step + 1) + ": " + outcome.not_finite +
                                 " is not finite");
      }
      result_.losses.push_back(outcome.loss);
      if (on_step) on_step(step + 1);
    }
    result_.activation_peak = usage_of(*model_, learner_.trained().state_bytes()).activation_peak;
    drop_gradients(*model_);
    result_.drift = model_->drift().worst;
  }

  void time_steps() {
    constexpr int kSettling = 3, kTimed = 9;
    const Watch watch = model_->stacks().front()->watch(
        {.on_backward = [this](const TaskGraph& graph, const Timeline& timeline) {
          result_.graph = graph;
          result_.timeline = timeline;
        }});
    model_->set_executor(nullptr);
    const data::Batch batch = train::to_model(batches_.train->make(0), *model_);
    std::vector<double> milliseconds;
    for (int step = 0; step < kSettling + kTimed; ++step) {
      drop_gradients(*model_);
      const Moment begin(options_.device);
      model_->loss(batch, {.pass = std::make_shared<Pass>(0, 0)}).backward();
      const double took = Moment(options_.device).ms_since(begin);
      if (step >= kSettling) milliseconds.push_back(took);
    }
    result_.step_ms = quantile(std::move(milliseconds), 0.5);
  }

  const DigitsTraining& options_;
  const train::TrainConfig config_;
  const std::unique_ptr<distributed::ProcessGroup> group_;
  const train::TrainingData data_;
  train::Learner learner_;
  const std::shared_ptr<models::Model> model_;
  const train::BatchSets batches_;
  DigitsResult result_;
};

}  // namespace

double DigitsResult::final_loss() const {
  const std::size_t count = std::min(kLossWindow, losses.size());
  if (count == 0) return 0.0;
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

int DigitsResult::recomputed_branches() const {
  const auto& tasks = graph.tasks();
  return static_cast<int>(std::count_if(
      tasks.begin(), tasks.end(), [](const Task& task) { return task.kind == TaskKind::recover; }));
}

DigitsResult train_digits(const DigitsTraining& options, const std::function<void(int)>& on_step) {
  return DigitsRun(options).run(on_step);
}

}  // namespace pareprop::cli
