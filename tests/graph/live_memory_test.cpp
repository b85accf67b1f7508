#include "tests/graph/live_memory.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/graph/random_case.h"

namespace pareprop {
namespace {

KeepPlan plan_of(Policy policy, int depth, const KeepOptions& options = {}) {
  return keep_plan(std::vector<Policy>(static_cast<std::size_t>(depth), policy), options);
}

std::vector<BranchBytes> same_bytes(const KeepPlan& plan, const BranchBytes& bytes) {
  return std::vector<BranchBytes>(plan.branches.size(), bytes);
}

Timeline unit_timeline(const TaskGraph& graph) {
  return simulate(graph,
                  [](const Task& task) { return task.kind == TaskKind::recover ? 1.0 : 2.0; });
}

constexpr BranchBytes kBytes = {.tape = 1000, .value = 100, .workspace = 10};

TEST(LiveMemory, OneBranchByHand) {
  const KeepPlan plan = plan_of(Policy::reverse, 1, {.recover_bottom = false});
  const TaskGraph graph = backward_schedule(plan, {});
  // u[1], u[2], u[3] have 20, 3, 20 bytes (outputs are as large as the inputs).
  const LiveMemory memory(graph, plan,
                          {{.tape = 1000, .value = 3, .workspace = 400},
                           {.tape = 5000, .value = 20, .workspace = 700}});
  // recover G0: tape 5000, u[1] 20, u[2] 3, u[3] 20.   gradient G0: tape 5000, u[1], u[2], 700.
  // recover F0 (tape only): tape 1000, u[1].            gradient F0: tape 1000, u[1], 400.
  const LivePeak peak = memory.along(unit_timeline(graph));
  EXPECT_EQ(peak.tape_bytes, 5000);
  EXPECT_EQ(peak.total_bytes, 5000 + 20 + 3 + 700);
  EXPECT_EQ(peak.recovered_tapes, 1);
  EXPECT_EQ(memory.worst_case().total_bytes, peak.total_bytes);
}

// Recovering u[k] needs u[k+1] and u[k+2], also when no tape holds them any more.
TEST(LiveMemory, ThreeValuesAreAliveInARecover) {
  const KeepPlan plan = plan_of(Policy::reverse, 3, {.recover_bottom = false});
  std::vector<BranchBytes> bytes = same_bytes(plan, {});
  bytes[1].value = 1;
  bytes[2].value = 10;
  bytes[3].value = 100;
  const TaskGraph graph = backward_schedule(plan, {});
  const LiveMemory memory(graph, plan, bytes);
  EXPECT_EQ(memory.along(unit_timeline(graph)).total_bytes, 111);
  EXPECT_EQ(memory.worst_case().total_bytes, 111);

  const KeepPlan anchor = plan_of(Policy::anchor, 1, {.recover_bottom = false});
  const TaskGraph small = backward_schedule(anchor, {});
  // u[1] and u[2] are kept: nothing is recovered, and G0's recover does not read u[3].
  EXPECT_EQ(LiveMemory(small, anchor, {{.value = 1}, {.value = 10}}).worst_case().total_bytes, 11);
}

TEST(LiveMemory, TheDriftKeepsTheBottomToTheEnd) {
  const KeepPlan plan = plan_of(Policy::reverse, 1);
  const TaskGraph graph = backward_schedule(plan, {});
  const LiveMemory memory(graph, plan,
                          {{.tape = 9000, .value = 3, .workspace = 400},
                           {.tape = 5000, .value = 20, .workspace = 700}});
  EXPECT_EQ(memory.along(unit_timeline(graph)).total_bytes, 9000 + 400 + 3 + 20);
}

TEST(LiveMemory, StoredHoldsEverythingAtTheStart) {
  const KeepPlan plan = plan_of(Policy::store, 4);
  const TaskGraph graph = backward_schedule(plan, {});
  const LiveMemory memory(graph, plan, same_bytes(plan, kBytes));
  const LivePeak peak = memory.along(unit_timeline(graph));
  EXPECT_EQ(peak.tape_bytes, 8 * 1000);
  EXPECT_EQ(peak.total_bytes, 8 * (1000 + 100) + 10);  // every tape holds its input
  EXPECT_EQ(peak.recovered_tapes, 0);
  EXPECT_EQ(memory.worst_case().total_bytes, peak.total_bytes);
}

TEST(LiveMemory, CheckpointHoldsInputsAndOneTape) {
  const KeepPlan plan = plan_of(Policy::checkpoint, 4);
  const TaskGraph graph = backward_schedule(plan, {});
  const LivePeak peak =
      LiveMemory(graph, plan, same_bytes(plan, kBytes)).along(unit_timeline(graph));
  EXPECT_EQ(peak.tape_bytes, 1000);
  EXPECT_EQ(peak.total_bytes, 8 * 100 + 1000 + 10);
}

TEST(LiveMemory, WithoutOverlapOneTapeAtEveryDepth) {
  for (int depth = 1; depth <= 40; depth += depth < 4 ? 1 : 9) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    const KeepPlan plan = plan_of(Policy::reverse, depth);
    const TaskGraph graph = backward_schedule(plan, {});
    const LiveMemory memory(graph, plan, same_bytes(plan, kBytes));
    for (const LivePeak& peak : {memory.along(unit_timeline(graph)), memory.worst_case()}) {
      EXPECT_EQ(peak.recovered_tapes, 1);
      EXPECT_EQ(peak.tape_bytes, 1000);
      EXPECT_LE(peak.total_bytes, 1000 + 10 + 4 * 100);
    }
  }
}

TEST(LiveMemory, WithOverlapTheLookaheadBoundsTheTapesAtEveryDepth) {
  for (int lookahead = 0; lookahead <= 5; ++lookahead) {
    for (int deferred = 0; deferred <= 3; ++deferred) {
      for (int lanes = 2; lanes <= 3; ++lanes) {
        const ScheduleOptions options = {
            .overlap = true, .lookahead = lookahead, .deferred = deferred, .lanes = lanes};
        std::int64_t at_depth_8 = 0;
        for (int depth : {8, 9, 24}) {
          SCOPED_TRACE("lookahead " + std::to_string(lookahead) + ", deferred " +
                       std::to_string(deferred) + ", lanes " + std::to_string(lanes) + ", depth " +
                       std::to_string(depth));
          const KeepPlan plan = plan_of(Policy::reverse, depth);
          const TaskGraph graph = backward_schedule(plan, options);
          const LiveMemory memory(graph, plan, same_bytes(plan, kBytes));
          const LivePeak worst = memory.worst_case();
          EXPECT_LE(worst.recovered_tapes, lookahead + 1);
          EXPECT_EQ(worst.tape_bytes, 1000 * worst.recovered_tapes);
          if (at_depth_8 == 0) at_depth_8 = worst.total_bytes;
          EXPECT_EQ(worst.total_bytes, at_depth_8);
          if (deferred == 0) {
            // Fast recovery uses the whole look-ahead.
            EXPECT_EQ(worst.recovered_tapes, lookahead + 1);
            const Timeline fast = simulate(graph, [](const Task& task) {
              return task.kind == TaskKind::recover ? 0.01 : 1.0;
            });
            EXPECT_EQ(memory.along(fast).recovered_tapes, lookahead + 1);
          }
        }
      }
    }
  }
}

TEST(LiveMemory, TheTailCountsAsKeptNotAsRecovered) {
  const KeepPlan plan = plan_of(Policy::reverse, 6, {.tail = 3});
  const TaskGraph graph = backward_schedule(plan, {});
  const LivePeak peak =
      LiveMemory(graph, plan, same_bytes(plan, kBytes)).along(unit_timeline(graph));
  EXPECT_EQ(peak.tape_bytes, 3000);
  EXPECT_EQ(peak.recovered_tapes, 1);
}

TEST(LiveMemory, WhatWasRecoveredInAdvanceIsThereFromTheStart) {
  const KeepPlan plan = plan_of(Policy::reverse, 6);
  const ScheduleOptions options = {.overlap = true, .lookahead = 2};
  const TaskGraph graph = backward_schedule(plan, options, 2);
  const LiveMemory memory(graph, plan, same_bytes(plan, kBytes));
  // Recovery so slow that gradients wait for it: the start is the peak.
  const Timeline slow =
      simulate(graph, [](const Task& task) { return task.kind == TaskKind::recover ? 9.0 : 1.0; });
  EXPECT_EQ(memory.along(slow).recovered_tapes, 3);
  EXPECT_EQ(memory.worst_case().recovered_tapes, 3);
}

TEST(LiveMemory, WhatIsRecoveredForTheStackBelowStays) {
  const KeepPlan plan = plan_of(Policy::reverse, 2), below = plan_of(Policy::reverse, 2);
  const ScheduleOptions options = {.overlap = true, .lookahead = 2};
  const TaskGraph graph = backward_schedule(plan, options, 0, &below);
  const LiveMemory memory(graph, plan, same_bytes(plan, kBytes), below,
                          same_bytes(below, {.tape = 50000, .value = 7000}));
  const LivePeak peak = memory.along(unit_timeline(graph));
  EXPECT_EQ(peak.tape_bytes, 2 * 50000 + 1000);
  EXPECT_EQ(peak.recovered_tapes, 3);
  EXPECT_GE(peak.total_bytes, 2 * (50000 + 7000) + 1000);
}

TEST(LiveMemory, TasksThatTakeNoTimeStillHoldTheirMemory) {
  const KeepPlan plan = plan_of(Policy::reverse, 3);
  const TaskGraph graph = backward_schedule(plan, {});
  const LiveMemory memory(graph, plan, same_bytes(plan, kBytes));
  const Timeline instant = simulate(graph, [](const Task&) { return 0.0; });
  EXPECT_EQ(memory.along(instant).tape_bytes, 1000);
  EXPECT_EQ(memory.along(instant).total_bytes, memory.along(unit_timeline(graph)).total_bytes);
}

TEST(LiveMemory, TheWorstCaseIsNeverExceeded) {
  const auto options = testing::all_schedule_options();
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto test = testing::random_case(random, static_cast<int>(random() % 9),
                                           options[random() % options.size()]);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + test.describe());
    auto random_bytes = [&](const KeepPlan& plan) {
      std::vector<BranchBytes> bytes(plan.branches.size());
      for (BranchBytes& branch : bytes) {
        branch = {.tape = static_cast<std::int64_t>(random() % 1000),
                  .value = static_cast<std::int64_t>(random() % 300),
                  .workspace = static_cast<std::int64_t>(random() % 500)};
      }
      return bytes;
    };
    const KeepPlan below = test.below.value_or(KeepPlan{});
    const auto bytes = random_bytes(test.plan), below_bytes = random_bytes(below);
    const LiveMemory memory(test.graph, test.plan, bytes, below, below_bytes);
    const LivePeak worst = memory.worst_case();
    for (int run = 0; run < 10; ++run) {
      const LivePeak peak = memory.along(simulate(test.graph, [&](const Task&) {
        const double scale = random() % 4 == 0 ? 10.0 : 1.0;
        return random() % 8 == 0 ? 0.0 : scale * static_cast<double>(random() % 100);
      }));
      ASSERT_LE(peak.tape_bytes, worst.tape_bytes);
      ASSERT_LE(peak.total_bytes, worst.total_bytes);
      ASSERT_LE(peak.recovered_tapes, worst.recovered_tapes);
    }
  }
}

TEST(LiveMemory, RefusesWhatDoesNotFitTogether) {
  const KeepPlan plan = plan_of(Policy::reverse, 2);
  const KeepPlan below = plan_of(Policy::reverse, 3);
  const TaskGraph graph = backward_schedule(plan, {.overlap = true});
  const TaskGraph both = backward_schedule(plan, {.overlap = true}, 0, &below);
  const auto bytes = same_bytes(plan, kBytes);
  EXPECT_THROW(LiveMemory(graph, plan, {}), std::invalid_argument);
  EXPECT_THROW(LiveMemory(graph, plan, same_bytes(plan, {.tape = -1})), std::invalid_argument);
  EXPECT_THROW(LiveMemory(graph, plan_of(Policy::reverse, 1), {{}, {}}), std::invalid_argument);
  EXPECT_THROW(LiveMemory(graph, below, same_bytes(below, kBytes)), std::invalid_argument);
  EXPECT_THROW(LiveMemory(both, plan, bytes), std::invalid_argument);
  EXPECT_NO_THROW(LiveMemory(both, plan, bytes, below, same_bytes(below, kBytes)));
  EXPECT_THROW(LiveMemory(graph, plan, bytes).along(unit_timeline(both)), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop
