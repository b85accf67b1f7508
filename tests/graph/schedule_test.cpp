#include "pareprop/graph/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <tuple>

#include "tests/graph/ancestors.h"
#include "tests/graph/live_memory.h"
#include "tests/graph/random_case.h"

namespace pareprop {
namespace {

using testing::RandomCase;

TaskCosts unit_costs(double recover, double gradient, double weight_gradient = 0.0) {
  return [=](const Task& task) {
    return task.kind == TaskKind::recover    ? recover
           : task.kind == TaskKind::gradient ? gradient
                                             : weight_gradient;
  };
}

KeepPlan all_blocks(Policy policy, int depth) {
  return keep_plan(std::vector<Policy>(static_cast<std::size_t>(depth), policy));
}

double makespan(const KeepPlan& plan, const ScheduleOptions& options, const TaskCosts& costs) {
  return simulate(backward_schedule(plan, options), costs).makespan();
}

// Exactly the tasks that the plan asks for, each once, on the lanes that there are.
void check_tasks(const RandomCase& test) {
  std::map<std::tuple<TaskKind, int, int>, int> count;
  for (const Task& task : test.graph.tasks()) ++count[{task.kind, task.branch, task.stack}];
  auto times = [&](TaskKind kind, int branch, int stack) {
    const auto found = count.find({kind, branch, stack});
    return found == count.end() ? 0 : found->second;
  };
  int expected = 0;
  for (int k = test.plan.first; k < test.branches(); ++k) {
    const bool in_advance = recovered_at(test.plan.coupling, test.branches(), k) < test.ready;
    const int recovers = test.plan.at(k).needs_recover() && !in_advance;
    ASSERT_EQ(times(TaskKind::recover, k, 0), recovers) << "branch " << k;
    ASSERT_EQ(times(TaskKind::gradient, k, 0), 1) << "branch " << k;
    ASSERT_EQ(times(TaskKind::weight_gradient, k, 0), test.deferred() > 0) << "branch " << k;
    expected += recovers + 1 + (test.deferred() > 0);
  }
  if (test.below && test.plan.steps() > 0 && test.options.overlap) {
    const int below = test.below->count();
    for (int j = 0; j < std::min(test.lookahead(), below); ++j) {
      const int k = recovered_at(test.below->coupling, below, j);
      const int recovers = test.below->branches[static_cast<std::size_t>(k)].needs_recover();
      ASSERT_EQ(times(TaskKind::recover, k, 1), recovers) << "branch " << k << " below";
      expected += recovers;
    }
  }
  ASSERT_EQ(test.graph.size(), expected);
  ASSERT_LE(test.graph.lanes(), test.options.overlap ? test.options.lanes : 1);
  ASSERT_EQ(test.graph.rule(), test.options.overlap ? test.options.rule : LaneRule::fixed);
  const bool alternates = test.options.overlap && test.options.rule == LaneRule::fixed;
  for (const Task& task : test.graph.tasks()) {
    const bool apart = task.kind == TaskKind::weight_gradient && test.options.lanes == 3;
    const int own = test.lookahead() > 1 ? task.block() % 2 : task.branch % 2;
    ASSERT_EQ(task.lane, !alternates ? 0 : apart ? 2 : own) << label(task);
  }
}

void check_order(const RandomCase& test) {
  const int top = test.branches() - 1;
  int last_recover = -1;
  for (int id = 0; id < test.graph.size(); ++id) {
    const Task& task = test.graph[id];
    const std::vector<bool> before = testing::ancestors(test.graph, id);
    auto comes_after = [&](int other) {
      return other < 0 || before[static_cast<std::size_t>(other)];
    };
    const int step = test.step(task);
    if (task.kind == TaskKind::recover) {
      ASSERT_TRUE(comes_after(last_recover)) << label(task);
      last_recover = id;
      // In one lane a block of one stream is recovered whole, between gradients.
      const bool by_blocks = !test.options.overlap && test.least() == 1;
      const int nearest = by_blocks ? (step & ~1) - 1 : step - 1 - test.lookahead();
      for (int i = 0; i < id; ++i) {
        const Task& other = test.graph[i];
        if (other.kind == TaskKind::recover || !before[static_cast<std::size_t>(i)]) continue;
        ASSERT_LE(test.step(other), nearest) << label(task) << " waits for " << label(other);
      }
      if (nearest >= 0 && nearest <= top) {
        ASSERT_TRUE(comes_after(test.graph.find(TaskKind::gradient, top - nearest))) << label(task);
        ASSERT_TRUE(comes_after(test.graph.find(TaskKind::weight_gradient, top - nearest)))
            << label(task);
      }
    } else if (task.kind == TaskKind::gradient) {
      ASSERT_TRUE(comes_after(test.graph.find(TaskKind::recover, task.branch))) << label(task);
      if (task.branch < top) {
        ASSERT_TRUE(comes_after(test.graph.find(TaskKind::gradient, task.branch + 1)))
            << label(task);
      }
      const int waiting = task.branch + 1 + test.deferred();
      if (test.deferred() > 0 && waiting <= top) {
        ASSERT_TRUE(comes_after(test.graph.find(TaskKind::weight_gradient, waiting)))
            << label(task);
      }
    } else {
      ASSERT_TRUE(comes_after(test.graph.find(TaskKind::gradient, task.branch))) << label(task);
    }
  }
}

void check_bounds(const RandomCase& test, std::mt19937& random) {
  const KeepPlan below = test.below.value_or(KeepPlan{});
  const LiveMemory memory(test.graph, test.plan,
                          std::vector<BranchBytes>(test.plan.branches.size()), below,
                          std::vector<BranchBytes>(below.branches.size()));
  const int bound = test.lookahead() + 1;
  ASSERT_LE(memory.worst_case().recovered_tapes, bound);

  const double slow = std::uniform_int_distribution<int>(0, 1)(random) ? 20.0 : 1.0;
  double serial = 0.0;
  const Timeline timeline = simulate(test.graph, [&](const Task& task) {
    const double seconds = std::uniform_real_distribution<double>(0.0, 1.0)(random) *
                           (task.kind == TaskKind::weight_gradient ? slow : 1.0);
    serial += seconds;
    return seconds;
  });
  ASSERT_LE(memory.along(timeline).recovered_tapes, memory.worst_case().recovered_tapes);
  ASSERT_LE(timeline.makespan(), serial * (1.0 + 1e-12));
}

TEST(Schedule, EveryDepthAndOptionWithRandomPlans) {
  const auto all_options = testing::all_schedule_options();
  for (int depth = 0; depth <= 16; ++depth) {
    for (std::size_t option = 0; option < all_options.size(); ++option) {
      for (unsigned round = 0; round < 2; ++round) {
        const unsigned seed = static_cast<unsigned>(depth * 1000 + option) * 2 + round;
        std::mt19937 random(seed);
        const RandomCase test = testing::random_case(random, depth, all_options[option]);
        SCOPED_TRACE("seed " + std::to_string(seed) + ": " + test.describe());
        check_tasks(test);
        if (!HasFatalFailure()) check_order(test);
        if (!HasFatalFailure()) check_bounds(test, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The bound is lookahead + 1 also when weight gradients fall behind on their own lane.
TEST(Schedule, SlowWeightGradientsDoNotPileUpTapes) {
  for (int lookahead = 0; lookahead <= 4; ++lookahead) {
    for (int deferred = 1; deferred <= 4; ++deferred) {
      const KeepPlan plan = all_blocks(Policy::reverse, 12);
      const TaskGraph graph = backward_schedule(
          plan, {.overlap = true, .lookahead = lookahead, .deferred = deferred, .lanes = 3});
      const LiveMemory memory(graph, plan, std::vector<BranchBytes>(plan.branches.size()));
      EXPECT_EQ(memory.along(simulate(graph, unit_costs(1, 1, 50))).recovered_tapes, lookahead + 1)
          << "lookahead " << lookahead << ", deferred " << deferred;
    }
  }
}

TEST(Schedule, OneLaneAlternates) {
  const TaskGraph graph = backward_schedule(all_blocks(Policy::reverse, 2), {});
  std::vector<std::string> labels;
  for (const Task& task : graph.tasks()) labels.push_back(label(task));
  EXPECT_EQ(labels,
            (std::vector<std::string>{"recover G1", "gradient G1", "recover F1", "gradient F1",
                                      "recover G0", "gradient G0", "recover F0", "gradient F0"}));
}

TEST(Schedule, MakespansAreTheKnownFormulas) {
  constexpr double kRecover = 1.0, kGradient = 2.0;
  const auto costs = unit_costs(kRecover, kGradient);
  for (int depth = 1; depth <= 16; ++depth) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    const double branches = 2.0 * depth;
    const KeepPlan reverse = all_blocks(Policy::reverse, depth);
    const double serial = (kRecover + kGradient) * branches;
    EXPECT_EQ(makespan(reverse, {}, costs), serial);
    EXPECT_EQ(makespan(all_blocks(Policy::store, depth), {}, costs), kGradient * branches);
    EXPECT_EQ(makespan(all_blocks(Policy::store, depth), {.overlap = true}, costs),
              kGradient * branches);
    EXPECT_EQ(makespan(reverse, {.overlap = true, .lookahead = 0}, costs), serial);
    for (int lookahead = 1; lookahead <= 5; ++lookahead) {
      const ScheduleOptions overlap = {.overlap = true, .lookahead = lookahead};
      // The pipe fills with one recover; then the slower chain sets the pace.
      EXPECT_EQ(makespan(reverse, overlap, costs), kRecover + kGradient * branches);
      EXPECT_EQ(makespan(reverse, overlap, unit_costs(3, 1)), 3 * branches + 1);
      EXPECT_EQ(makespan(reverse, overlap, unit_costs(2, 2)), 2 * branches + 2);
    }
    // With blocks on fixed lanes both recovers of the top block come before its gradients.
    EXPECT_EQ(makespan(reverse, {.overlap = true, .rule = LaneRule::fixed}, costs),
              2 * kRecover + kGradient * branches);
  }
}

// Streams have no lock: what is done with gradients of parameters is done in one order.
TEST(Schedule, WeightGradientsOnFixedLanesFollowOneAnother) {
  for (int lanes = 2; lanes <= 3; ++lanes) {
    const TaskGraph graph = backward_schedule(
        all_blocks(Policy::reverse, 4),
        {.overlap = true, .deferred = 2, .lanes = lanes, .rule = LaneRule::fixed});
    for (int k = 0; k + 1 < 8; ++k) {
      const int id = graph.find(TaskKind::weight_gradient, k);
      const int above = graph.find(TaskKind::weight_gradient, k + 1);
      EXPECT_TRUE(testing::ancestors(graph, id)[static_cast<std::size_t>(above)]) << k;
    }
  }
}

TEST(Schedule, TheForwardPassIsOnTheLanesOfTheGradients) {
  for (int lookahead = 0; lookahead <= 3; ++lookahead) {
    const TaskGraph forward = forward_schedule(8, 3, lookahead);
    const TaskGraph backward =
        backward_schedule(all_blocks(Policy::reverse, 4),
                          {.overlap = true, .lookahead = lookahead, .rule = LaneRule::fixed});
    ASSERT_EQ(forward.size(), 8);
    EXPECT_EQ(forward.rule(), LaneRule::fixed);
    for (int k = 0; k < 8; ++k) {
      EXPECT_EQ(forward[k].branch, k);
      EXPECT_EQ(forward[k].lane, backward[backward.find(TaskKind::gradient, k)].lane);
      EXPECT_EQ(forward[k].needs, k == 0 ? std::vector<int>{} : std::vector<int>{k - 1});
    }
    EXPECT_EQ(forward_schedule(8, 1, lookahead).lanes(), 1);
  }
}

// Recover, dX and dW of equal cost: three lanes run at 1 a branch, two at 1.5.
TEST(Schedule, DeferredWeightGradientsBalanceTheLanes) {
  for (int depth = 1; depth <= 16; ++depth) {
    const double branches = 2.0 * depth;
    const KeepPlan plan = all_blocks(Policy::reverse, depth);
    for (int deferred = 1; deferred <= 4; ++deferred) {
      SCOPED_TRACE("depth " + std::to_string(depth) + ", deferred " + std::to_string(deferred));
      const auto costs = unit_costs(1, 1, 1);
      EXPECT_EQ(makespan(plan, {.overlap = true, .deferred = deferred, .lanes = 3}, costs),
                branches + 2);
      const double two = makespan(plan, {.overlap = true, .deferred = deferred, .lanes = 2}, costs);
      EXPECT_GE(two, 1.5 * branches);
      EXPECT_LE(two, 1.5 * branches + 2);
    }
  }
}

// A lane that stays empty would take threads from the others.
TEST(Schedule, HasNoMoreLanesThanItsTasksFill) {
  const auto lanes = [](const KeepPlan& plan, ScheduleOptions options,
                        const KeepPlan* below = nullptr) {
    options.overlap = true;
    return backward_schedule(plan, options, 0, below).lanes();
  };
  const KeepPlan reverse = all_blocks(Policy::reverse, 4), store = all_blocks(Policy::store, 4);
  const KeepPlan one = all_blocks(Policy::store, 1);
  EXPECT_EQ(lanes(reverse, {}), 2);
  EXPECT_EQ(lanes(reverse, {.lanes = 3}), 2);
  EXPECT_EQ(lanes(reverse, {.deferred = 2}), 2);
  EXPECT_EQ(lanes(reverse, {.deferred = 2, .lanes = 3}), 3);
  EXPECT_EQ(lanes(reverse, {.rule = LaneRule::fixed}), 2);
  EXPECT_EQ(lanes(store, {}), 1);
  EXPECT_EQ(lanes(store, {}, &reverse), 2);
  EXPECT_EQ(lanes(store, {.deferred = 2}), 2);
  EXPECT_EQ(lanes(store, {.deferred = 2, .lanes = 3}), 3);
  EXPECT_EQ(lanes(one, {.deferred = 2}), 1);
  EXPECT_EQ(lanes(one, {.deferred = 2}, &reverse), 2);
  EXPECT_EQ(lanes(KeepPlan{}, {.deferred = 2, .lanes = 3}, &reverse), 1);
}

// Milliseconds of vit_base's tasks (batch 8, bf16), where lanes with a kind of task each waited for
// a twelfth of the time.
TEST(Schedule, ALaneThatIsFreeFindsSomethingToDo) {
  const TaskGraph graph =
      backward_schedule(all_blocks(Policy::reverse, 12), {.overlap = true, .deferred = 2});
  double work = 0.0;
  const Timeline timeline = simulate(graph, [&](const Task& task) {
    constexpr double kSeconds[3][2] = {{82e-3, 50e-3}, {75e-3, 50e-3}, {75e-3, 38e-3}};
    const double seconds = kSeconds[static_cast<int>(task.kind)][task.is_f() ? 1 : 0];
    work += seconds;
    return seconds;
  });
  EXPECT_GT(work / (2.0 * timeline.makespan()), 0.97);
}

// The lower stack starts with its topmost branches recovered, beside the last gradients of the
// upper one: the pipe does not empty in between.
TEST(Schedule, RecoveryOfTheStackBelowBeginsEarly) {
  const KeepPlan upper = all_blocks(Policy::reverse, 3), lower = all_blocks(Policy::reverse, 4);
  const ScheduleOptions options = {.overlap = true, .lookahead = 2};
  const auto costs = unit_costs(1, 2);
  const TaskGraph first = backward_schedule(upper, options, 0, &lower);
  const TaskGraph second = backward_schedule(lower, options, options.lookahead);
  EXPECT_EQ(first.find(TaskKind::recover, 7, 1), first.size() - 4);
  EXPECT_GE(first.find(TaskKind::recover, 6, 1), 0);
  EXPECT_EQ(first.find(TaskKind::recover, 5, 1), -1);
  EXPECT_EQ(second.find(TaskKind::recover, 7), -1);
  EXPECT_EQ(second.find(TaskKind::recover, 6), -1);
  EXPECT_EQ(simulate(first, costs).makespan() + simulate(second, costs).makespan(),
            1 + 2 * 6 + 2 * 8);
}

TEST(Schedule, UpdatesComeAfterAllGradientsOfTheirBlockAndBoundThem) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int i = 0; i < 400; ++i) {
    const int depth = draw(0, 9);
    std::vector<Policy> policies;
    for (int b = 0; b < depth; ++b) policies.push_back(kPolicies[draw(0, kPolicies.size() - 1)]);
    const ScheduleOptions options{.overlap = draw(0, 1) == 1,
                                  .lookahead = draw(0, 4),
                                  .deferred = draw(0, 3),
                                  .lanes = draw(2, 3),
                                  .updates = true,
                                  .rule = draw(0, 1) == 1 ? LaneRule::any : LaneRule::fixed};
    const TaskGraph graph = backward_schedule(keep_plan(policies), options);
    int updates = 0;
    for (int id = 0; id < graph.size(); ++id) {
      const Task& task = graph[id];
      const std::vector<bool> before = testing::ancestors(graph, id);
      const auto comes_after = [&](TaskKind kind, int branch) {
        const int other = graph.find(kind, branch);
        return other < 0 || before[static_cast<std::size_t>(other)];
      };
      if (task.kind == TaskKind::update) {
        ++updates;
        for (int k = task.branch; k < 2 * depth; ++k) {
          ASSERT_TRUE(comes_after(TaskKind::gradient, k)) << label(task);
          ASSERT_TRUE(comes_after(TaskKind::weight_gradient, k)) << label(task);
        }
        ASSERT_TRUE(comes_after(TaskKind::update, task.branch + 2)) << label(task);
      } else if (task.kind == TaskKind::gradient) {
        ASSERT_TRUE(comes_after(TaskKind::update, 2 * (task.block() + 2))) << label(task);
      }
    }
    ASSERT_EQ(updates, depth);
    ScheduleOptions without = options;
    without.updates = false;
    ASSERT_EQ(graph.size() - updates, backward_schedule(keep_plan(policies), without).size());
  }
}

TEST(Schedule, RefusesImpossibleOptions) {
  const KeepPlan plan = all_blocks(Policy::reverse, 1);
  for (const ScheduleOptions& wrong :
       {ScheduleOptions{.lookahead = -1}, ScheduleOptions{.deferred = -1},
        ScheduleOptions{.lanes = 1}, ScheduleOptions{.lanes = 4}}) {
    EXPECT_THROW(backward_schedule(plan, wrong), std::invalid_argument);
  }
}

}  // namespace
}  // namespace pareprop
