// Whoever leaves out one wait is told: the races of DeviceRaces are absent because every edge and
// every event is there, not because nobody looks.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "pareprop/lanes/stream_lanes.h"
#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/reversible/stack.h"
#include "tests/lanes/random_backward.h"
#include "tests/reversible/test_branches.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop {
namespace {

using testing::Mutation;
using testing::RaceCollector;
using testing::SimulatedDevice;

// An edge that only limits memory: without it tasks are in the right order all the same.
bool bounds_memory(const Task& task, const Task& needed) {
  if (task.kind == TaskKind::recover) return needed.kind != TaskKind::recover;
  return task.kind == TaskKind::gradient && needed.kind == TaskKind::weight_gradient;
}

// Streams with a mistake.
class MutatedLanes final : public Executor {
 public:
  int lanes() const override { return inner_.lanes(); }
  bool asynchronous() const override { return true; }

  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer) override {
    int block = SimulatedDevice::counts().blocks;
    const auto note_blocks = [&] {
      for (; block < SimulatedDevice::counts().blocks; ++block) blocks.push_back(block);
    };
    const auto watched = [&](const Task& task) {
      note_blocks();
      kind_ = task.kind;
      body(task);
      block = SimulatedDevice::counts().blocks;  // those of the body are autograd's
    };
    TaskGraph mutated = order_only ? ordered(graph) : graph;
    for (const auto& [id, needed] : testing::essential_edges(graph)) {
      if (graph[id].lane == graph[needed].lane || edges++ != without_edge) continue;
      left_out = label(graph[id]) + " without " + label(graph[needed]);
      harmless = bounds_memory(graph[id], graph[needed]);
      mutated = graph.without_edge(id, needed);
    }
    inner_.run(mutated, watched, observer);
    note_blocks();
  }

  void hand_back(std::shared_ptr<const void> memory, int owner) override {
    ++hand_backs[kind_];
    if (without_hand_back != kind_) inner_.hand_back(std::move(memory), owner);
  }

  bool order_only = false;  // no edges that only limit memory
  int without_edge = -1;    // of all runs, from the first on
  std::optional<TaskKind> without_hand_back;

  int edges = 0;
  std::map<TaskKind, int> hand_backs;
  std::vector<int> blocks;  // streams that were made to wait: their numbers since reset_counts()
  std::string left_out;
  bool harmless = false;

 private:
  static TaskGraph ordered(TaskGraph graph) {
    for (int id = 0; id < graph.size(); ++id) {
      for (const int needed : std::vector<int>(graph[id].needs)) {
        if (bounds_memory(graph[id], graph[needed])) graph = graph.without_edge(id, needed);
      }
    }
    return graph;
  }

  StreamLanes inner_{SimulatedDevice::device(), 3};
  TaskKind kind_ = TaskKind::recover;
};

// Writes to the weights as an optimizer does.
class Writes : public GradientTaker {
 public:
  bool takes(const at::Tensor&) const override { return true; }
  void take(const BlockGradients& block) override {
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
      block.parameters[i].add_(block.gradients[i], -1e-3);
    }
  }
};

struct Mutable {
  std::shared_ptr<MutatedLanes> lanes = std::make_shared<MutatedLanes>();
  Stack stack{nullptr};
  bool updates = false;

  explicit Mutable(const StackPlan& plan, Arithmetic arithmetic = Arithmetic::floating) {
    const int depth = static_cast<int>(plan.policies.size());
    auto blocks = testing::test_blocks(depth, {.dtype = at::kFloat});
    blocks[2].g = blocks[1].g;
    stack = Stack(std::move(blocks), plan, StackOptions{.arithmetic = arithmetic});
    stack->to(SimulatedDevice::device());
    stack->set_executor(lanes);
  }

  // Three training steps: mistakes are made in the second, and memory is used again in the third.
  // Whether a race was found.
  static constexpr int kSteps = 3;
  bool races() {
    std::vector<std::string> found;
    {
      const RaceCollector collector;
      SimulatedDevice::reset_counts();
      std::vector<at::Tensor> gradients;
      for (int i = 0; i < kSteps; ++i) {
        // The host waits for the copy, but not for what is made of it.
        const at::Tensor x = testing::random_tensor({2, 4, 8}, at::kFloat, 7)
                                 .to(SimulatedDevice::device())
                                 .mul(0.5)
                                 .requires_grad_(true);
        const auto [y1, y2] = stack->forward(x, x, call());
        // Between the passes the caller's stream uses, and frees, memory of the lanes.
        for (const at::Tensor& gradient : gradients) gradient.mul(2.0);
        gradients.clear();
        std::vector<at::Tensor> wanted = stack->parameters();
        wanted.push_back(x);
        gradients =
            torch::autograd::grad({y1.mul(y2).sum()}, wanted, {}, std::nullopt, false, true);
        std::erase_if(gradients, [](const at::Tensor& t) { return !t.defined(); });
      }
      for (const at::Tensor& gradient : gradients) gradient.mul(2.0);
      found = collector.races();
    }
    SimulatedDevice::finish();
    return !found.empty();
  }

  // Of a step.
  CallOptions call() const {
    if (!updates) return {};
    return {.pass = std::make_shared<Pass>(0, 0, nullptr, std::make_shared<Writes>())};
  }

  // Of `count` things in all steps, those of the second: from the first number to before the
  // second.
  static std::pair<int, int> of_second_step(std::size_t count) {
    const int each = static_cast<int>(count) / kSteps;
    return {each, 2 * each};
  }
};

std::vector<StackPlan> mutable_plans() {
  const StackPlan tail = plan_of(Mode::pareprop, 4);
  StackPlan reverse = tail, ahead = tail, stored = tail;
  reverse.tail = 0;
  ahead.lookahead = 3;
  ahead.deferred = 1;
  stored.policies.assign(4, Policy::store);
  return {tail, reverse, ahead, stored};
}

TEST(DeviceMutations, AnEdgeThatIsLeftOutIsARace) {
  int races = 0, harmless = 0;
  for (const StackPlan& plan : mutable_plans()) {
    Mutable sound(plan);
    ASSERT_FALSE(sound.races());
    const auto [begin, end] = Mutable::of_second_step(static_cast<std::size_t>(sound.lanes->edges));
    for (int edge = begin; edge < end; ++edge) {
      Mutable mutated(plan);
      mutated.lanes->without_edge = edge;
      EXPECT_NE(mutated.races(), mutated.lanes->harmless) << mutated.lanes->left_out;
      ++(mutated.lanes->harmless ? harmless : races);
    }
  }
  std::cout << races << " edges left out, and " << harmless << " that only limit memory\n";
  EXPECT_GE(races, 20);
  EXPECT_GE(harmless, 5);
}

TEST(DeviceMutations, AnEventThatIsLeftOutIsARace) {
  int tried = 0;
  for (const StackPlan& plan : mutable_plans()) {
    Mutable sound(plan);
    sound.lanes->order_only = true;
    ASSERT_FALSE(sound.races());
    const std::vector<int> blocks = sound.lanes->blocks;
    const auto [begin, end] = Mutable::of_second_step(blocks.size());
    for (int i = begin; i < end; ++i) {
      Mutable mutated(plan);
      mutated.lanes->order_only = true;
      const Mutation mutation(Mutation::Kind::event_block, blocks[static_cast<std::size_t>(i)]);
      EXPECT_TRUE(mutated.races()) << "event " << i - begin << " of " << end - begin;
      EXPECT_TRUE(mutation.happened());
      ++tried;
    }
  }
  std::cout << tried << " events left out\n";
  EXPECT_GE(tried, 20);
}

// The executor frees memory by all events that it has issued, those that limit memory too. Whether
// the memory is then used again before a later event depends on sizes, so not each is a race.
TEST(DeviceMutations, EventsThatLimitMemoryMatterToo) {
  int tried = 0, races = 0;
  for (const StackPlan& plan : mutable_plans()) {
    Mutable sound(plan);
    ASSERT_FALSE(sound.races());
    const std::vector<int> blocks = sound.lanes->blocks;
    const auto [begin, end] = Mutable::of_second_step(blocks.size());
    for (int i = begin; i < end; ++i) {
      Mutable mutated(plan);
      const Mutation mutation(Mutation::Kind::event_block, blocks[static_cast<std::size_t>(i)]);
      races += mutated.races() ? 1 : 0;
      ++tried;
    }
  }
  std::cout << races << " of " << tried << " events are races when they are left out\n";
  EXPECT_GE(races, tried * 4 / 5);
}

// What a task hands back may be safe for other reasons: another has it still, or an edge that
// limits memory orders what comes next. So each kind of task has a case in which it is not.
struct HandBackCase {
  TaskKind kind;
  Arithmetic arithmetic;
  int lookahead, deferred;
  bool order_only, updates;
};

TEST(DeviceMutations, MemoryThatIsNotHandedBackIsARace) {
  using enum Policy;
  const std::vector<HandBackCase> cases{
      {TaskKind::weight_gradient, Arithmetic::floating, 1, 2, false, false},
      {TaskKind::weight_gradient, Arithmetic::exact, 3, 1, false, false},
      // In floating point the tape of the branch above has the same tensor.
      {TaskKind::recover, Arithmetic::exact, 2, 2, false, false},
      {TaskKind::recover, Arithmetic::exact, 3, 0, true, false},
      {TaskKind::gradient, Arithmetic::floating, 0, 0, true, false},
      {TaskKind::update, Arithmetic::floating, 1, 2, false, true},
      {TaskKind::update, Arithmetic::exact, 1, 0, true, true}};
  for (const HandBackCase& c : cases) {
    SCOPED_TRACE(name(c.kind));
    StackPlan plan = plan_of(Mode::pareprop, 4);
    plan.policies = {reverse, store, reverse, reverse};
    plan.tail = 0;
    plan.lookahead = c.lookahead;
    plan.deferred = c.deferred;
    const auto make = [&] {
      Mutable made(plan, c.arithmetic);
      made.updates = c.updates;
      made.lanes->order_only = c.order_only;
      return made;
    };
    Mutable sound = make();
    EXPECT_FALSE(sound.races());
    EXPECT_GT(sound.lanes->hand_backs[c.kind], 0);
    Mutable mutated = make();
    mutated.lanes->without_hand_back = c.kind;
    EXPECT_TRUE(mutated.races());
  }
}

}  // namespace
}  // namespace pareprop
