// The time of one step of each optimizer and kind of state beside torch's fused AdamW in float32,
// on the parameters of a network: bench_optimizers [MODEL [ROUNDS]] writes a table to standard
// output. Contestants take turns, so that what else the machine does meets all of them alike.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn_like.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/kernels/row_kernels.h"
#include "pareprop/optim/adamw.h"
#include "pareprop/optim/sgd.h"
#include "pareprop/text/fixed.h"

namespace pareprop {
namespace {

struct Contestant {
  std::string name;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<double> milliseconds = {};

  double median() {
    std::sort(milliseconds.begin(), milliseconds.end());
    return milliseconds[milliseconds.size() / 2];
  }
  std::int64_t state_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [key, tensor] : optimizer->state()) {
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
    return bytes;
  }
};

io::NamedTensors leaves_like(const io::NamedTensors& parameters, at::ScalarType type) {
  io::NamedTensors leaves;
  for (const auto& [name, parameter] : parameters) {
    at::Tensor leaf = parameter.detach().to(type, /*non_blocking=*/false, /*copy=*/true);
    leaf.mutable_grad() = at::randn_like(leaf).mul_(1e-3);
    leaves.emplace_back(name, leaf);
  }
  return leaves;
}

void time_step(Contestant& contestant) {
  const auto begin = std::chrono::steady_clock::now();
  contestant.optimizer->step(1e-4);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  contestant.milliseconds.push_back(took.count());
}

void run(const std::string& model_name, int rounds) {
  const auto model = models::make_model(model_name);
  const auto parameters = models::trained_parameters(*model);
  const auto floats = leaves_like(parameters, at::kFloat);
  const auto halves = leaves_like(parameters, at::kBFloat16);
  std::vector<Contestant> contestants;
  for (const optim::StateKind kind :
       {optim::StateKind::fp32, optim::StateKind::bf16, optim::StateKind::eight_bit}) {
    const std::string state(name(kind));
    const auto add = [&](const std::string& title, const io::NamedTensors& weights) {
      contestants.push_back(
          {"AdamW, " + state + title,
           std::make_unique<optim::AdamW>(weights, optim::AdamWOptions{.state = kind})});
    };
    add("", floats);
    add(", bf16 weights", halves);
    contestants.push_back(
        {"SGD, " + state, std::make_unique<optim::Sgd>(floats, optim::SgdOptions{.state = kind})});
  }
  for (Contestant& contestant : contestants) time_step(contestant);  // memory is touched
  for (Contestant& contestant : contestants) contestant.milliseconds.clear();
  for (int round = 0; round < rounds; ++round) {
    for (Contestant& contestant : contestants) time_step(contestant);
  }
  const double of_torch = contestants.front().median();
  const auto bytes_of_torch = static_cast<double>(contestants.front().state_bytes());
  std::cout << model_name << ", " << at::get_num_threads() << " threads, " << kernel_capability()
            << ", median of " << rounds << "\n| optimizer, state | ms | of fp32 | state of fp32 |\n"
            << "|---|---|---|---|\n";
  for (Contestant& contestant : contestants) {
    std::cout << "| " << contestant.name << " | " << text::fixed(contestant.median(), 1) << " | "
              << text::fixed(contestant.median() / of_torch, 3) << " | "
              << text::fixed(static_cast<double>(contestant.state_bytes()) / bytes_of_torch, 4)
              << " |\n";
  }
}

}  // namespace
}  // namespace pareprop

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "vit_base";
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 15;
  at::NoGradGuard no_grad;
  pareprop::run(model, rounds);
  return 0;
}
