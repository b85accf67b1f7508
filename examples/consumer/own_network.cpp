// A network of one's own, two reversible stacks with something ordinary between them: planned for a
// number of bytes, verified against ordinary autograd, trained and traced.

#include <torch/torch.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <vector>

#include "pareprop/pareprop.h"

namespace nn = torch::nn;

pareprop::Stack mlps(int depth, int width) {
  std::vector<pareprop::Block> blocks;
  const auto mlp = [width] {
    return nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({width})),
                          nn::Linear(width, 4 * width), nn::GELU(), nn::Linear(4 * width, width));
  };
  for (int i = 0; i < depth; ++i) blocks.push_back({mlp(), mlp()});
  return blocks;
}

// Stacks, weights and one training step: all that planner, verify and recorder need.
std::shared_ptr<pareprop::StackNetwork> make_network() {
  pareprop::Stack lower = mlps(6, 64), upper = mlps(4, 96);
  nn::Linear between(128, 96);
  std::vector<torch::Tensor> weights = between->parameters();
  for (const auto& stack : {lower, upper}) {
    for (const auto& weight : stack->parameters()) weights.push_back(weight);
  }
  const auto step = [=](std::int64_t samples, const std::shared_ptr<pareprop::Pass>& pass) mutable {
    const auto numbers = torch::arange(samples * 256 * 64, between->weight.device());
    const torch::Tensor x = numbers.sin().view({samples, 256, 64});
    const auto [a, b] = lower->forward(x, x, {.pass = pass});
    const torch::Tensor h = between->forward(torch::cat({a, b}, -1));
    const auto [c, d] = upper->forward(h, h, {.pass = pass});
    (c + d).square().mean().backward();
  };
  return std::make_shared<pareprop::StackNetwork>(std::vector{lower, upper}, weights, step);
}

int main() {
  pareprop::memory::install_caching_allocator();  // which counts bytes
  const auto make_on_meta = [] {
    const pareprop::MetaDeviceScope scope;  // weights have shapes and no memory
    return make_network();
  };
  const auto plan = pareprop::plan::Planner(make_on_meta, {.batch = 16}).plan(/*budget=*/100 << 20);

  const auto network = make_network();
  for (const auto& row : pareprop::verify(*network, {.plans = {plan.step}})) {
    std::cout << name(row.mode) << (row.holds ? " holds\n" : " is wrong\n");
  }
  network->set_plan(plan.step);
  torch::optim::AdamW optimizer(network->weights(), 1e-3);
  pareprop::TraceRecorder recorder(*network);
  recorder.begin("three steps");
  pareprop::memory::reset_peaks();
  for (std::uint64_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    network->step(16, std::make_shared<pareprop::Pass>(/*seed=*/0, step));
    optimizer.step();
  }
  std::cout << "budget " << plan.budget << ", predicted " << plan.predicted.total_peak
            << ", measured " << pareprop::memory::usage().total_peak << " bytes\n";
  std::ofstream("own_network.svg") << pareprop::step_svg(recorder.finish());
}
