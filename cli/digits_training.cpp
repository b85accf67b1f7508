#include "cli/digits_training.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>

#include "cli/auto_plan.h"
#include "pareprop/data/images/digits.h"
#include "pareprop/memory/meter.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/torch_lanes.h"
#include "pareprop/sweep/quantile.h"

namespace pareprop::cli {
namespace {

// Steps whose memory is not measured: the optimizer makes its state in the first.
constexpr int kWarmUp = 2;
constexpr std::size_t kLossWindow = 10;
constexpr double kGradientNorm = 1.0;

// Shuffled anew for each epoch, by the seed alone; an epoch's incomplete last batch is left out.
class Batches {
 public:
  Batches(data::LabelledImages images, std::int64_t batch, std::uint64_t seed)
      : images_(std::move(images)), batch_(batch), seed_(seed) {}

  data::LabelledImages operator[](std::int64_t step) const {
    const std::int64_t per_epoch = images_.images.size(0) / batch_;
    const auto order = shuffled(static_cast<std::uint64_t>(step / per_epoch));
    const at::Tensor chosen = at::tensor(order).narrow(0, step % per_epoch * batch_, batch_);
    return {images_.images.index_select(0, chosen), images_.labels.index_select(0, chosen)};
  }

 private:
  std::vector<std::int64_t> shuffled(std::uint64_t epoch) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(images_.images.size(0)));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      const auto key = [&](std::int64_t i) {
        return random_key({seed_, epoch, static_cast<std::uint64_t>(i)});
      };
      return key(a) < key(b);
    });
    return order;
  }

  data::LabelledImages images_;
  std::int64_t batch_;
  std::uint64_t seed_;
};

// Every sixth image is held out, so that both parts come from the whole file.
std::pair<data::LabelledImages, data::LabelledImages> split_digits(at::ScalarType dtype) {
  const data::LabelledImages all = data::digits();
  std::vector<std::int64_t> trained, held_out;
  for (std::int64_t i = 0; i < all.images.size(0); ++i) {
    (i % 6 == 5 ? held_out : trained).push_back(i);
  }
  // Centred and scaled roughly to variance 1.
  const at::Tensor images = all.images.to(dtype).sub_(0.3).mul_(2.7);
  auto part = [&](const std::vector<std::int64_t>& chosen) -> data::LabelledImages {
    const at::Tensor index = at::tensor(chosen);
    return {images.index_select(0, index), all.labels.index_select(0, index)};
  };
  return {part(trained), part(held_out)};
}

// The models' initial weights suit wide networks; 64 channels learn faster from 1 / sqrt(64).
void widen_weights(models::Model& model) {
  c10::NoGradGuard no_grad;
  constexpr double kFactor = 0.125 / 0.02;
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 2) parameter.mul_(kFactor);
  }
}

// Up over the first tenth of the steps, then down to zero along a cosine.
double learning_rate(const DigitsTraining& options, int step) {
  const double done = (step + 1.0) / options.steps;
  constexpr double kRise = 0.1;
  if (done < kRise) return options.learning_rate * done / kRise;
  return options.learning_rate * 0.5 *
         (1.0 + std::cos(std::numbers::pi * (done - kRise) / (1 - kRise)));
}

double accuracy(models::Model& model, const data::LabelledImages& images) {
  c10::NoGradGuard no_grad;
  model.eval();
  return model.forward({.input = images.images, .target = {}})
      .argmax(-1)
      .eq(images.labels)
      .to(at::kDouble)
      .mean()
      .item<double>();
}

double forward_and_backward(models::Model& model, const data::LabelledImages& batch,
                            std::shared_ptr<Pass> pass) {
  const at::Tensor loss =
      model.loss({.input = batch.images, .target = batch.labels}, {.pass = std::move(pass)});
  loss.backward();
  return loss.item<double>();
}

void train(models::Model& model, const Batches& batches, const DigitsTraining& options,
           const std::function<void(int)>& on_step, DigitsResult& result) {
  constexpr int kLanes = 2;
  const int threads = std::max(1, at::get_num_threads() / kLanes);
  const IntraOpThreads scope(threads);
  model.set_executor(std::make_shared<TorchCpuLanes>(kLanes, threads));
  torch::optim::AdamW optimizer(model.parameters(),
                                torch::optim::AdamWOptions(options.learning_rate));
  for (int step = 0; step < options.steps; ++step) {
    const data::LabelledImages batch = batches[step];
    for (auto& group : optimizer.param_groups()) {
      group.options().set_lr(learning_rate(options, step));
    }
    if (step == std::min(kWarmUp, options.steps - 1)) memory::reset_peaks();
    optimizer.zero_grad();
    result.losses.push_back(forward_and_backward(
        model, batch, std::make_shared<Pass>(options.seed, static_cast<std::uint64_t>(step))));
    torch::nn::utils::clip_grad_norm_(model.parameters(), kGradientNorm);
    {
      memory::TagScope tag(memory::Tag::optimizer);
      optimizer.step();
    }
    if (on_step) on_step(step + 1);
  }
  optimizer.zero_grad();
  result.activation_peak = memory::usage().activation_peak;
  result.drift = model.drift().worst;
}

void time_steps(models::Model& model, const data::LabelledImages& batch, DigitsResult& result) {
  constexpr int kSettling = 3;
  constexpr int kTimed = 9;
  const Stack& stack = model.stacks().front();
  const Watch watch =
      stack->watch({.on_backward = [&](const TaskGraph& graph, const Timeline& timeline) {
        result.graph = graph;
        result.timeline = timeline;
      }});
  model.set_executor(nullptr);
  model.train();
  std::vector<double> milliseconds;
  for (int step = 0; step < kSettling + kTimed; ++step) {
    model.zero_grad();
    const auto begin = std::chrono::steady_clock::now();
    forward_and_backward(model, batch, std::make_shared<Pass>(0, 0));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (step >= kSettling) milliseconds.push_back(took.count());
  }
  result.step_ms = quantile(std::move(milliseconds), 0.5);
}

StepPlan plan_for(const DigitsTraining& options, models::Model& model) {
  plan::Planner planner =
      make_planner({.model = kDigitsModel, .overrides = {}}, {.batch = options.batch,
                                                              .precision = options.precision,
                                                              .arithmetic = Arithmetic::exact,
                                                              .only_activations = true});
  planner.use(plan::measure_step_times(model, options.batch, /*overlapped=*/true));
  return planner.plan_step(options.activation_budget).step;
}

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
  DigitsResult result;
  const at::ScalarType dtype = stream_dtype(options.precision);
  const auto [trained, held_out] = split_digits(dtype);
  const Batches batches(trained, options.batch, options.seed);

  const auto model = models::make_model(kDigitsModel, {}, {.dtype = dtype, .seed = options.seed});
  widen_weights(*model);
  model->train();
  model->set_options({.precision = options.precision, .arithmetic = Arithmetic::exact});
  model->set_plan(options.mode == Mode::automatic ? plan_for(options, *model)
                                                  : model->plan_of(options.mode));
  train(*model, batches, options, on_step, result);
  result.accuracy = accuracy(*model, held_out);
  time_steps(*model, batches[0], result);
  return result;
}

}  // namespace pareprop::cli
