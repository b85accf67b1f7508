// One of the processes that tests of groups and of the launcher start.
//
//   train_worker [--nproc N] WHAT ARGUMENTS...
//
// WHAT is a function of main(). Exit code 0: all went as it should; 3: the group failed, and what
// it said is on standard error.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "pareprop/device/choose_device.h"
#include "pareprop/distributed/gradient_buckets.h"
#include "pareprop/distributed/launcher.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/weights.h"
#include "pareprop/train/config_agreement.h"
#include "tests/distributed/process_state.h"
#include "tests/simulated_device/simulated_device.h"
#include "tests/train/small_run.h"

namespace pareprop::distributed {
namespace {

using Arguments = std::vector<std::string>;
using std::chrono::milliseconds;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("not so: " + what);
}

void collectives(ProcessGroup& group) {
  const auto rank = static_cast<float>(group.rank()), world = static_cast<float>(group.world());
  const at::Tensor sum = at::full({1000}, rank + 1), other = at::full({3, 5}, rank);
  const auto pending = group.all_reduce(sum);
  group.all_reduce(other)->wait();
  pending->wait();
  require(sum.eq(world * (world + 1) / 2).all().item<bool>(), "sum");
  require(other.eq(world * (world - 1) / 2).all().item<bool>(), "a sum beside another");
  const at::Tensor from_last = at::full({7}, rank);
  group.broadcast(from_last, group.world() - 1)->wait();
  require(from_last.eq(world - 1).all().item<bool>(), "broadcast");
  // The sum in one process has the bits of the sum in all.
  for (const std::int64_t elements : {1, 100, 70'001}) {
    const at::Tensor own = at::arange(elements).add(rank).mul(0.37).sin();
    const at::Tensor everywhere = own.clone();
    group.all_reduce(everywhere)->wait();
    for (int to = 0; to < group.world(); ++to) {
      const at::Tensor there = own.clone();
      group.reduce(there, to)->wait();
      require(group.rank() != to || there.equal(everywhere), "reduce");
    }
  }
  try {
    group.all_reduce(at::full({4, 4}, rank).t().narrow(0, 0, 2))->wait();
    require(group.world() == 1, "a tensor that is not contiguous was refused");
  } catch (const std::invalid_argument&) {
  }
  group.barrier();
}

// Rank `victim` dies, stalls or throws after a few operations.
void lose(ProcessGroup& group, const std::string& how, int victim) {
  const at::Tensor data = at::full({1000}, 1.0F);
  for (int i = 0; i < 5; ++i) group.all_reduce(data)->wait();
  if (group.rank() == victim) {
    if (how == "killed") kill(getpid(), SIGKILL);
    if (how == "late") std::this_thread::sleep_for(milliseconds(6000));
    if (how == "throws") throw std::logic_error("thrown on purpose");
    if (how == "stopped") kill(getpid(), SIGSTOP);
  }
  for (int i = 0; i < 5; ++i) group.all_reduce(data)->wait();
}

models::Batch part_of(const models::Batch& batch, std::int64_t part, std::int64_t parts) {
  const std::int64_t size = batch.input.size(0) / parts;
  models::Batch own{.input = batch.input.narrow(0, part * size, size),
                    .target = batch.target.narrow(0, part * size, size)};
  if (batch.mask.defined()) own.mask = batch.mask.narrow(0, part * size, size);
  return own;
}

// Three steps of two micro-steps; weights to FOLDER/RANK-of-WORLD.
void train_model(ProcessGroup& group, const std::string& folder, const std::string& name,
                 const std::string& device) {
  models::Overrides change{
      .width = 24, .image_size = 32, .classes = 5, .dropout = 0.0, .drop_path = 0.0};
  if (name.starts_with("vit")) change.depths = {3};
  if (name.starts_with("swin")) {
    change.depths = {1, 2, 1, 1};
    change.width = 48;
    change.image_size = 64;
  }
  change.plain = name.ends_with("plain");
  const auto model = models::make_model(name.substr(0, name.find(' ')), change,
                                        {.device = choose_device(device, group.local_rank())});
  Shares shares(models::trained_parameters(*model), group);
  GradientBuckets buckets(*model, shares, 40000);
  std::vector<Watch> watches;
  if (!change.plain) {
    for (const Stack& stack : model->stacks()) {
      watches.push_back(stack->watch({.on_block_gradients = buckets.on_block()}));
    }
    model->set_mode(Mode::pareprop);
  }
  const io::NamedTensors parameters = models::trained_parameters(*model);
  for (int step = 0; step < 3; ++step) {
    const models::Batch batch = model->example(8, static_cast<std::uint64_t>(step));
    for (int micro = 0; micro < 2; ++micro) {
      const auto mine = part_of(part_of(batch, micro, 2), group.rank(), group.world());
      const at::Tensor loss = model->loss(mine) / 2;
      if (micro == 1) buckets.begin();
      loss.backward();
    }
    buckets.finish();
    // Not AdamW: it makes whole steps of gradients that are nothing but rounding errors.
    at::NoGradGuard no_grad;
    for (const auto& [key, parameter] : parameters) {
      parameter.sub_(parameter.grad(), 0.1);
      parameter.mutable_grad().reset();
    }
  }
  models::save_weights(
      *model, folder + "/" + std::to_string(group.rank()) + "-of-" + std::to_string(group.world()));
}

// A whole run on DEVICE, each process with BATCH samples of a micro-step.
void run_training(ProcessGroup& group, const std::string& out, const std::string& device,
                  const std::string& batch) {
  train::TrainConfig config = train::testing::small_config(out);
  config.device = device;
  config.batch = std::stoi(batch);
  config.steps = config.eval_every = 4;
  config.accumulate = 2;
  config.clip = 0.5;
  config.ema = 0.5;
  train::train(config, group);
}

// A file of more bytes cannot be written any more.
void limit_files(std::size_t bytes) {
  signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "a limit of files");
}

// A short run with these fields: OUT KEY VALUE KEY VALUE... Beside what a run writes, OUT has the
// losses and norms of its steps, with all their digits, and of each rank the bytes of the
// optimizer and the most that gradients took.
void run_with_fields(ProcessGroup& group, const Arguments& a) {
  const std::string& out = a.at(0);
  train::TrainConfig config = train::testing::small_config(out);
  config.device = "cpu";
  config.exact = true;
  config.batch = 4;
  config.steps = 5;
  config.eval_every = 1000;
  for (std::size_t i = 1; i < a.size(); i += 2) {
    if (a[i] == "file limit of rank 1") {
      if (group.rank() == 1) limit_files(std::stoul(a.at(i + 1)));
      continue;
    }
    train::set_field(config, a[i], a.at(i + 1));
  }
  const train::TrainResult result = train::train(config, group);
  std::ofstream(out + "/optimizer_bytes-" + std::to_string(group.rank()))
      << result.memory.live_of(memory::Tag::optimizer);
  std::ofstream(out + "/gradient_bytes-" + std::to_string(group.rank()))
      << result.memory.peak_of(memory::Tag::gradients);
  if (group.rank() != 0) return;
  std::ofstream losses(out + "/losses");
  losses << std::hexfloat;
  for (const train::StepRecord& step : result.steps) {
    losses << step.step << ' ' << step.loss << ' ' << step.gradient_norm << '\n';
  }
}

// One run after another, with "then" between them.
void run_all_with_fields(ProcessGroup& group, const Arguments& a) {
  for (auto begin = a.begin() + 2; begin < a.end();) {
    const auto end = std::find(begin, a.end(), "then");
    run_with_fields(group, {begin, end});
    begin = end == a.end() ? end : end + 1;
  }
}

// Weights of all owners come to all, and numbers of their own parameters.
void share(ProcessGroup& group) {
  for (const Shard shard : {Shard::none, Shard::state}) {
    io::NamedTensors parameters;
    for (int i = 0; i < 20; ++i) {
      const at::Tensor tensor = at::full({1 + 37 * i}, -1.0F);
      parameters.emplace_back(std::to_string(i), i == 7 ? tensor.to(at::kDouble) : tensor);
    }
    // One that travels alone, and one that is not contiguous.
    parameters.emplace_back("large", at::full({Shares::kParcelBytes / 4 + 1}, -1.0F));
    parameters.emplace_back("turned", at::full({4, 6}, -1.0F).t());
    Shares shares(parameters, group, shard);
    require(shares.holds_all() == (shard == Shard::none), "who holds all");
    std::vector<double> numbers;
    for (const auto& [name, tensor] : shares.own()) {
      tensor.fill_(10 * group.rank());
      numbers.push_back(static_cast<double>(tensor.numel()));
    }
    shares.gather_weights();
    const std::vector<double> all = shares.joined(numbers);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& tensor = parameters[i].second;
      const int from = shard == Shard::none ? group.rank() : shares.owner(i);
      require(tensor.eq(10 * from).all().item<bool>(), "weights of the owner");
      require(all[i] == static_cast<double>(tensor.numel()), "numbers of the owner");
    }
  }
}

volatile sig_atomic_t terminated = 0;

// Exits with 7 at SIGTERM. FOLDER/RANK says that it waits for it.
int wait_for_signal(const std::string& folder) {
  signal(SIGTERM, [](int) { terminated = 1; });
  std::ofstream(folder + "/" + std::to_string(launch_variables().rank)) << getpid();
  while (terminated == 0) usleep(10000);
  return 7;
}

// Says that it is there with FOLDER/RANK, and computes with the others until FOLDER/go is there.
void work_on(ProcessGroup& group, const std::string& folder) {
  std::ofstream(folder + "/" + std::to_string(group.rank())) << getpid();
  const at::Tensor go = at::full({1}, 0.0F);
  while (go.item<float>() == 0.0F) {
    go.fill_(std::filesystem::exists(folder + "/go") ? 1.0 : 0.0);
    group.broadcast(go)->wait();
    usleep(1000);
  }
}

// Rank 1 stops itself, and ends as wait_for_signal() does once it is continued; rank 0 fails then.
int stop_and_fail(const std::string& folder) {
  const std::string file = folder + "/1";
  if (launch_variables().rank == 1) {
    signal(SIGTERM, [](int) { terminated = 1; });
    std::ofstream(file) << getpid() << std::flush;
    kill(getpid(), SIGSTOP);
    while (terminated == 0) usleep(10000);
    std::ofstream(folder + "/ended") << getpid();
    return 7;
  }
  pid_t other = 0;
  while (!(std::ifstream(file) >> other)) usleep(1000);
  require(testing::wait_until_stopped(other), "rank 1 is stopped");
  return 9;
}

// All but rank 0 have other values: KEY VALUE KEY VALUE...
void compare_configs(ProcessGroup& group, const Arguments& a) {
  train::TrainConfig config;
  for (std::size_t i = 2; group.rank() != 0 && i < a.size(); i += 2) {
    train::set_field(config, a[i], a.at(i + 1));
  }
  train::check_same_config(config, group);
}

at::Device device_named_in(const Arguments& a) {
  const bool simulated = std::find(a.begin(), a.end(), "simulated") != a.end();
  return simulated ? pareprop::testing::SimulatedDevice::device() : at::Device(at::kCPU);
}

int in_group(const Arguments& a) {
  const auto group = process_group_from_environment(
      {.timeout = milliseconds(std::stoi(a.at(1))), .device = device_named_in(a)});
  if (a[0] == "collectives") collectives(*group);
  if (a[0] == "lose") lose(*group, a.at(2), std::stoi(a.at(3)));
  if (a[0] == "work") work_on(*group, a.at(2));
  if (a[0] == "configs") compare_configs(*group, a);
  if (a[0] == "train") train_model(*group, a.at(2), a.at(3), a.size() > 4 ? a[4] : "cpu");
  if (a[0] == "shares") share(*group);
  if (a[0] == "fields") run_all_with_fields(*group, a);
  if (a[0] == "run") run_training(*group, a.at(2), a.at(3), a.at(4));
  return 0;
}

int run(const Arguments& a) {
  if (a.at(0) == "--nproc") {
    return launch(std::stoi(a.at(1)), without_nproc(a),
                  {.grace_seconds = 1.0,
                   .on_failure = [](const std::string& what) { std::cerr << what << std::endl; }});
  }
  if (a[0] == "signal") return wait_for_signal(a.at(1));
  if (a[0] == "stop and fail") return stop_and_fail(a.at(1));
  if (a[0] == "name") {
    std::cerr << std::ifstream("/proc/self/comm").rdbuf() << std::flush;
    return 0;
  }
  if (a[0] == "exit") {  // rank a[1] with code a[2]; the others wait for longer than any test
    if (launch_variables().rank == std::stoi(a.at(1))) return std::stoi(a.at(2));
    if (a.size() > 3) signal(SIGTERM, SIG_IGN);
    std::this_thread::sleep_for(std::chrono::minutes(5));
  }
  return in_group(a);
}

}  // namespace
}  // namespace pareprop::distributed

int main(int argc, char** argv) {
  pareprop::memory::install_caching_allocator();
  try {
    return pareprop::distributed::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return dynamic_cast<const std::logic_error*>(&error) != nullptr ? 4 : 3;
  }
}
