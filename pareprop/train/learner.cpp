#include "pareprop/train/learner.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/models/fine_tuning.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/optim/make_optimizer.h"
#include "pareprop/train/model_for_data.h"

namespace pareprop::train {
namespace {

std::shared_ptr<models::Model> make_network(const TrainConfig& config, const StackOptions& numerics,
                                            const TrainingData& data, c10::Device device,
                                            const FirstWeights* weights,
                                            const std::function<void(const std::string&)>& say) {
  auto model = make_model(
      config, data,
      {.dtype = stream_dtype(numerics.precision), .device = device, .seed = config.seed});
  if (weights != nullptr) {
    load_first_weights(*weights, *model, data.class_names(), say);
  } else {
    scale_first_weights(*model, config);
  }
  model->set_options(numerics);
  return model;
}

std::optional<Ema> make_average(const TrainConfig& config, const models::Model& model) {
  if (config.ema <= 0.0) return std::nullopt;
  return Ema(models::trained_parameters(model), config.ema);
}

// The factor of each parameter's learning rate (Note [Layers of a network]).
std::vector<double> rate_factors(const TrainConfig& config, const io::NamedTensors& parameters,
                                 const models::Model& model) {
  if (config.layer_decay == 1.0) return {};
  std::vector<std::string> names;
  for (const auto& [name, parameter] : parameters) names.push_back(name);
  const models::Layers layers = models::layers_of(names, models::parameter_names(model));
  std::vector<double> factors;
  for (const int layer : layers.of) {
    factors.push_back(std::pow(config.layer_decay, layers.last - layer));
  }
  return factors;
}

}  // namespace

Learner make_learner(const TrainConfig& config, const TrainChoices& choices,
                     const TrainingData& data, c10::Device device, distributed::ProcessGroup& group,
                     const FirstWeights* weights,
                     const std::function<void(const std::string&)>& say) {
  auto model = make_network(config, choices.numerics, data, device, weights, say);
  auto shares = std::make_unique<distributed::Shares>(models::trained_parameters(*model), group,
                                                      choices.shard);
  auto optimizer = optim::make_optimizer(shares->own(), choices.optimizer);
  optimizer->scale_rates(rate_factors(config, shares->own(), *model));
  std::optional<Ema> average = make_average(config, *model);
  return {std::move(model), std::move(shares), std::move(optimizer), std::move(average)};
}

plan::MakeOptimizer dry_optimizer(const optim::OptimizerOptions& options) {
  return [options](const std::vector<at::Tensor>& weights) {
    const auto optimizer = optim::dry_optimizer(weights, options);
    return plan::DryOptimizer{.state = optim::state_tensors(*optimizer),
                              .step = [optimizer] { optimizer->step(1.0); }};
  };
}

plan::MakeOptimizer with_average(plan::MakeOptimizer make) {
  return [make = std::move(make)](const std::vector<at::Tensor>& weights) {
    plan::DryOptimizer all = make(weights);
    for (at::Tensor& average : plan::copies_of_weights(1)(weights).state) {
      all.state.push_back(std::move(average));
    }
    // Its updates.
    all.state.push_back(at::empty({}, at::TensorOptions(at::kLong).device(at::kMeta)));
    return all;
  };
}

}  // namespace pareprop::train
