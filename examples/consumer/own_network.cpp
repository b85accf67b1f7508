// A network of one's own, two reversible stacks with ordinary modules around them: verified against
// ordinary autograd, planned for half of the memory that stored training would add, and trained.

#include <torch/torch.h>

#include <iostream>

#include "pareprop/pareprop.h"

namespace nn = torch::nn;

nn::Sequential mlp(std::int64_t width) {
  return nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({width})), nn::Linear(width, 4 * width),
                        nn::GELU(), nn::Linear(4 * width, width));
}

pareprop::Stack stack(int depth, std::int64_t width) {
  std::vector<pareprop::Block> blocks;
  for (int i = 0; i < depth; ++i) blocks.push_back({mlp(width), mlp(width)});
  return blocks;
}

struct Net : nn::Module {
  nn::Conv2d patches =
      register_module("patches", nn::Conv2d(nn::Conv2dOptions(3, 64, 4).stride(4)));
  pareprop::Stack lower = register_module("lower", stack(6, 64));
  nn::Linear between = register_module("between", nn::Linear(128, 96));
  pareprop::Stack upper = register_module("upper", stack(4, 96));
  nn::Linear head = register_module("head", nn::Linear(96, 10));

  torch::Tensor loss(const torch::Tensor& images, const torch::Tensor& labels,
                     const std::shared_ptr<pareprop::Pass>& pass) {
    const torch::Tensor x = patches(images).flatten(2).transpose(1, 2);
    const auto [a, b] = lower->forward(x, x, {.pass = pass});
    const torch::Tensor h = between(torch::cat({a, b}, -1));
    const auto [c, d] = upper->forward(h, h, {.pass = pass});
    return nn::functional::cross_entropy(head((c + d).mean(1)), labels);
  }
};

// Stacks, weights and one training step: all that planner, verify and recorder need.
std::shared_ptr<pareprop::StackNetwork> network_of(const std::shared_ptr<Net>& net) {
  const auto step = [net](std::int64_t samples, const std::shared_ptr<pareprop::Pass>& pass) {
    const auto options = net->head->weight.options().requires_grad(false);
    const torch::Tensor images = torch::ones({samples, 3, 64, 64}, options);
    net->loss(images, torch::zeros({samples}, options.dtype(torch::kLong)), pass).backward();
  };
  return std::make_shared<pareprop::StackNetwork>(
      std::vector<pareprop::Stack>{net->lower, net->upper}, net->parameters(), step);
}

int main() {
  pareprop::memory::install_caching_allocator();
  constexpr std::int64_t kBatch = 16;
  const auto make_on_meta = [] {
    const pareprop::MetaDeviceScope scope;  // weights have shapes and no memory
    return network_of(std::make_shared<Net>());
  };
  pareprop::plan::Planner planner(make_on_meta, {.batch = kBatch});
  const std::int64_t least = planner.plan(0).smallest_budget;
  const std::int64_t stored = planner.predict(planner.all(pareprop::Mode::stored)).at_most;
  const pareprop::plan::Plan plan = planner.plan(least + (stored - least) / 2);

  const auto net = std::make_shared<Net>();
  const auto network = network_of(net);
  bool right = true;
  for (const auto& row : pareprop::verify(*network, {.plans = {plan.step}})) {
    right = right && row.holds;
    std::cout << name(row.mode) << ": largest gradient error " << row.max_rel_error << '\n';
  }

  network->set_plan(plan.step);
  torch::optim::AdamW optimizer(net->parameters(), 1e-3);
  for (std::uint64_t step = 0; step < 3; ++step) {
    pareprop::memory::reset_peaks();
    optimizer.zero_grad();
    network->step(kBatch, std::make_shared<pareprop::Pass>(0, step));
    optimizer.step();
  }
  const std::int64_t peak = pareprop::memory::usage().total_peak;
  const double ratio = double(plan.predicted.total_peak) / double(peak);
  pareprop::TraceRecorder recorder(*network);
  recorder.begin("one step");
  network->step(kBatch, std::make_shared<pareprop::Pass>(0, 3));
  const std::size_t spans = recorder.finish().spans.size();
  std::cout << "budget " << plan.budget << ", predicted " << plan.predicted.total_peak
            << ", measured " << peak << " bytes (predicted / measured " << ratio << "), " << spans
            << " spans traced\n";
  const bool kept = peak <= plan.budget && ratio > 0.95 && ratio < 1.05 && spans > 0;
  if (!right || !kept) std::cerr << "gradients, or the budget, do not hold\n";
  return right && kept ? 0 : 1;
}
