// Stacks on the simulated device, which finds every race of its streams
// (tests/simulated_device/simulated_device.h).

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "pareprop/lanes/stream_lanes.h"
#include "pareprop/ops/compare.h"
#include "pareprop/reversible/checkpoint.h"
#include "pareprop/reversible/stack.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/graph/ancestors.h"
#include "tests/reversible/test_branches.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop {
namespace {

using ::testing::IsEmpty;
using testing::RaceCollector;
using testing::random_tensor;
using testing::SimulatedDevice;
using testing::test_blocks;
using testing::without_tail;

const testing::BranchShape kShape{.dtype = at::kFloat};

at::Tensor device_input(int device = 0) {
  return random_tensor({2, 4, 8}, at::kFloat, 7).to(SimulatedDevice::device(device));
}

// Forward and backward pass; gradients of the input and of all parameters.
std::vector<at::Tensor> step(Stack& stack, const at::Tensor& input, bool reference = false) {
  const at::Tensor x = input.detach().requires_grad_(true);
  const auto [y1, y2] = reference ? stack->reference(x, x) : stack->forward(x, x);
  std::vector<at::Tensor> wanted = stack->parameters();
  wanted.push_back(x);
  return torch::autograd::grad({y1.mul(y2).sum()}, wanted);
}

// Twice, so that memory is used again.
void expect_right(Stack stack, int device = 0) {
  stack->to(SimulatedDevice::device(device));
  const at::Tensor x = device_input(device);
  const auto expected = step(stack, x, /*reference=*/true);
  {
    const RaceCollector collector;
    for (int run = 0; run < 2; ++run) {
      EXPECT_LE(max_relative_error(expected, step(stack, x)), 1e-5);
    }
    EXPECT_THAT(collector.races(), IsEmpty());
  }
  SimulatedDevice::finish();
}

TEST(DeviceRaces, KeptTapesOfAnOverlappedPass) {
  StackPlan plan = plan_of(Mode::pareprop, 6);
  expect_right(Stack(test_blocks(6, kShape), plan));  // the tail
  plan.policies.assign(6, Policy::store);
  expect_right(Stack(test_blocks(6, kShape), plan));
  plan.policies = {Policy::reverse, Policy::store, Policy::products,
                   Policy::reverse, Policy::store, Policy::anchor};
  expect_right(Stack(test_blocks(6, kShape), plan));
}

TEST(DeviceRaces, SumsOfSharedParameters) {
  for (const int deferred : {0, 1, 2, 4}) {
    auto blocks = test_blocks(5, kShape);
    for (std::size_t i = 1; i < blocks.size(); ++i) blocks[i].g = blocks[0].g;
    blocks[3].f = blocks[2].f;
    StackPlan plan = without_tail(Mode::pareprop, 5);
    plan.deferred = deferred;
    expect_right(Stack(std::move(blocks), plan));
  }
}

// What a process group does with the gradients of a block: it copies them where they are, and a
// stream of its own waits for the stream on which it was called.
TEST(DeviceRaces, GradientsThatAreSentWhileTheyAreMade) {
  const c10::Device device = SimulatedDevice::device();
  const c10::Stream communication =
      c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  for (const int deferred : {0, 2}) {
    StackPlan plan = without_tail(Mode::pareprop, 4);
    plan.deferred = deferred;
    Stack stack(test_blocks(4, kShape), plan);
    stack->to(device);
    at::Tensor bucket;
    std::vector<int> blocks;
    const Watch watch = stack->watch({.on_block_gradients = [&](const BlockGradients& block) {
      blocks.push_back(block.block);
      if (!bucket.defined()) bucket = at::empty({10'000}, block.gradients.front().options());
      std::int64_t offset = 2'000 * block.block;
      for (const at::Tensor& gradient : block.gradients) {
        bucket.narrow(0, offset, gradient.numel()).copy_(gradient.flatten());
        offset += gradient.numel();
      }
      if (block.block % 2 != 0) return;  // a bucket is the size of two blocks
      c10::Event filled(device.type());
      filled.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
      filled.block(communication);
      const c10::StreamGuard guard(communication);
      bucket.narrow(0, 2'000 * block.block, 4'000).mul_(0.5);
    }});
    const RaceCollector collector;
    step(stack, device_input());
    EXPECT_THAT(collector.races(), IsEmpty());
    EXPECT_EQ(blocks, (std::vector<int>{3, 2, 1, 0}));
    SimulatedDevice::finish();
  }
}

// Streams that count the gradients that may run beside a recovery, and those that wait for it
// without need: autograd itself makes streams wait.
class WatchedLanes final : public Executor {
 public:
  int lanes() const override { return inner_.lanes(); }
  bool asynchronous() const override { return true; }
  void hand_back(std::shared_ptr<const void> memory, int owner) override {
    inner_.hand_back(std::move(memory), owner);
  }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer) override {
    int recovery = -1;  // the last that was issued
    std::optional<c10::Stream> its_stream;
    inner_.run(
        graph,
        [&](const Task& task) {
          const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
                                         .getStream(SimulatedDevice::device());
          const int id = static_cast<int>(&task - graph.tasks().data());
          body(task);
          if (task.kind == TaskKind::recover) {
            recovery = id;
            its_stream = stream;
          } else if (task.kind == TaskKind::gradient && recovery >= 0 &&
                     !testing::ancestors(graph, id)[static_cast<std::size_t>(recovery)]) {
            ++beside;
            if (SimulatedDevice::is_ordered(*its_stream, stream)) ++waiting;
          }
        },
        observer);
  }

  int beside = 0, waiting = 0;

 private:
  StreamLanes inner_{SimulatedDevice::device(), 3};
};

TEST(DeviceRaces, AGradientDoesNotWaitForTheRecoveryBesideIt) {
  Stack stack(test_blocks(6, kShape), without_tail(Mode::pareprop, 6));
  const auto lanes = std::make_shared<WatchedLanes>();
  stack->to(SimulatedDevice::device());
  stack->set_executor(lanes);
  for (int run = 0; run < 2; ++run) step(stack, device_input());
  SimulatedDevice::finish();
  EXPECT_GE(lanes->beside, 8);
  EXPECT_EQ(lanes->waiting, 0);
}

// A stack that was on the CPU first, with threads for lanes.
TEST(DeviceRaces, AStackTakesTheExecutorThatItsDeviceNeeds) {
  Stack stack(test_blocks(3, kShape), Mode::pareprop);
  stack->set_executor(std::make_shared<TorchCpuLanes>(2, 1));
  const at::Tensor x = random_tensor({2, 4, 8}, at::kFloat, 7);
  const auto expected = step(stack, x);
  stack->to(SimulatedDevice::device());
  auto got = step(stack, device_input());
  for (at::Tensor& t : got) t = t.cpu();
  EXPECT_LE(max_relative_error(expected, got), 1e-5);
  stack->to(at::kCPU);
  stack->set_executor(std::make_shared<StreamLanes>(SimulatedDevice::device(), 3));
  EXPECT_TRUE(bit_identical(expected, step(stack, x)));
}

TEST(DeviceRaces, TwoStacksOfOnePass) {
  for (const bool one_executor : {true, false}) {
    const auto executors = std::make_shared<Executors>();
    Stack lower(test_blocks(3, kShape, 5), without_tail(Mode::pareprop, 3));
    Stack upper(test_blocks(2, kShape, 9), without_tail(Mode::pareprop, 2));
    std::vector<at::Tensor> wanted;
    for (Stack stack : {lower, upper}) {
      stack->to(SimulatedDevice::device());
      if (one_executor) stack->set_executors(executors);
      for (const at::Tensor& p : stack->parameters()) wanted.push_back(p);
    }
    const at::Tensor x = device_input().requires_grad_(true);
    wanted.push_back(x);
    const auto gradients = [&](bool reference, bool twice) {
      const CallOptions call{.pass = std::make_shared<Pass>(1, 1)};
      at::Tensor h = x;
      for (Stack stack : {lower, upper}) {
        const auto [y1, y2] = reference ? stack->reference(h, h, call) : stack->forward(h, h, call);
        h = y1.mul(0.5).add(y2.tanh());
      }
      const at::Tensor loss = h.mul(h).sum();
      if (twice) torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/true);
      return torch::autograd::grad({loss}, wanted);
    };
    const auto expected = gradients(true, false);
    const RaceCollector collector;
    for (const bool twice : {false, true, false}) {
      EXPECT_LE(max_relative_error(expected, gradients(false, twice)), 1e-5);
    }
    EXPECT_THAT(collector.races(), IsEmpty());
    SimulatedDevice::finish();
  }
}

TEST(DeviceRaces, CheckpointOfAModule) {
  const c10::Device device = SimulatedDevice::device();
  auto mlp = std::make_shared<testing::TestMlp>(kShape, 3);
  mlp->to(device);
  const at::Tensor x = device_input().requires_grad_(true);
  std::vector<at::Tensor> wanted = mlp->parameters();
  wanted.push_back(x);
  const auto gradients = [&](const at::Tensor& y) {
    return torch::autograd::grad({y.mul(y).sum()}, wanted);
  };
  const auto expected = gradients(mlp->forward(x, {}));
  EXPECT_TRUE(bit_identical(expected, gradients(checkpoint(mlp, x))));
}

}  // namespace
}  // namespace pareprop
