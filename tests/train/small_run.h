#pragma once

#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <memory>

#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/optim/adamw.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/trainer.h"

namespace pareprop::train::testing {

inline std::shared_ptr<models::Model> small_vit(std::uint64_t seed, std::vector<int> depths = {2}) {
  return models::make_model("vit_tiny",
                            {.depths = std::move(depths),
                             .width = 24,
                             .image_size = 32,
                             .classes = 5,
                             .dropout = 0.0,
                             .drop_path = 0.0},
                            {.seed = seed});
}

// A run of a narrow RevViT on the digits.
inline TrainConfig small_config(const std::filesystem::path& out) {
  TrainConfig config;
  config.model = "vit_cifar";
  config.width = 32;
  config.depth = {2};
  config.data = "digits";
  config.mode = "pareprop";
  config.batch = 16;
  config.steps = 12;
  config.eval_every = 6;
  config.log_every = 1;
  config.initial_std = 0.15;
  config.learning_rate = 3e-3;
  config.out = out.string();
  return config;
}

inline TrainResult train_alone(const TrainConfig& config, const TrainEvents& events = {}) {
  const auto group = distributed::make_process_group({});
  return train(config, *group, events);
}

// A network with all that a checkpoint holds of it.
struct SmallRun {
  explicit SmallRun(std::uint64_t seed, std::vector<int> depths = {2})
      : model(small_vit(seed, std::move(depths))) {}

  std::shared_ptr<models::Model> model;
  std::unique_ptr<distributed::ProcessGroup> group = distributed::one_process();
  distributed::Shares shares = distributed::Shares(models::trained_parameters(*model), *group);
  optim::AdamW optimizer = optim::AdamW(shares.own());
  Ema average = Ema(models::trained_parameters(*model), 0.9);
  Trained trained = {*model, shares, optimizer, &average};

  // All that is saved holds this number.
  void fill(double value) {
    at::NoGradGuard no_grad;
    for (const auto& parameter : model->parameters()) parameter.fill_(value);
    for (const auto& state : {optimizer.state(), average.state()}) {
      for (const auto& [name, tensor] : state) tensor.fill_(value);
    }
  }
  bool holds(double value) const {
    for (const auto& state :
         {models::trained_parameters(*model), optimizer.state(), average.state()}) {
      for (const auto& [name, tensor] : state) {
        if (!tensor.eq(value).all().item<bool>()) return false;
      }
    }
    return true;
  }
};

}  // namespace pareprop::train::testing
