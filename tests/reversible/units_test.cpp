// The small parts of the engine on their own: stream arithmetic, drift probe, gradient slots.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/reversible/drift.h"
#include "pareprop/reversible/gradient_slots.h"
#include "pareprop/reversible/stream_arithmetic.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using testing::random_tensor;

TEST(StreamArithmetic, ExactAdditionIsUndoneBitForBitOverAThousandBranches) {
  for (auto dtype : {at::kFloat, at::kDouble}) {
    const StreamArithmetic exact(Arithmetic::exact, dtype);
    const at::Tensor start = exact.enter(random_tensor({64}, dtype, 1));
    at::Tensor u = start.clone();
    for (std::uint64_t i = 0; i < 1000; ++i) u = exact.add(u, random_tensor({64}, dtype, i));
    EXPECT_FALSE(u.equal(start));
    for (std::uint64_t i = 1000; i-- > 0;) u = exact.subtract(u, random_tensor({64}, dtype, i));
    EXPECT_TRUE(u.equal(start));
  }
}

TEST(StreamArithmetic, ExactValuesAreWithinHalfAStep) {
  const StreamArithmetic exact(Arithmetic::exact, at::kFloat);
  const at::Tensor x = random_tensor({1000}, at::kFloat, 1);
  EXPECT_LE(exact.leave(exact.enter(x)).sub(x).abs().max().item<double>(), std::ldexp(0.51, -20));
}

TEST(StreamArithmetic, OverwritesOnlyWhatNobodyElseHolds) {
  const StreamArithmetic floating(Arithmetic::floating, at::kFloat);
  at::Tensor u = random_tensor({8}, at::kFloat, 1);
  const at::Tensor copy = u.clone(), f = random_tensor({8}, at::kFloat, 2), view = u.view({2, 4});
  floating.add(u, f);
  EXPECT_TRUE(u.equal(copy)) << "the caller still holds it";
  floating.add(std::move(u), f);
  EXPECT_TRUE(view.view({8}).equal(copy)) << "a view still holds it";
  const at::Tensor spread = at::ones({1}).expand({8});
  EXPECT_FALSE(sole_owner(spread)) << "one element stands for eight";
}

DriftReport report_of(const DriftProbe& probe) {
  const DriftFindings found = probe.findings();
  return found.report(read_numbers(found.numbers));
}

int first_beyond(const DriftProbe& probe, double limit) {
  const DriftFindings found = probe.findings();
  return found.first_beyond(read_numbers(found.numbers), limit).first;
}

TEST(DriftProbe, NamesTheTopmostBranchThatIsOff) {
  for (const bool together : {false, true}) {
    DriftProbe probe(4, together);
    std::vector<at::Tensor> u;
    for (int k = 0; k < 4; ++k) {
      u.push_back(random_tensor({3, 50}, at::kFloat, std::uint64_t(k)));
      probe.remember(k, u.back());
    }
    for (int k : {3, 2, 1, 0})
      probe.compare(k, k <= 1 ? u[std::size_t(k)].mul(1.5) : u[std::size_t(k)]);
    EXPECT_EQ(first_beyond(probe, 1e-3), 1);
    EXPECT_EQ(first_beyond(probe, 0.9), -1);
    EXPECT_NEAR(report_of(probe).worst, 0.5, 1e-6);
    EXPECT_EQ(report_of(probe).at_bottom, -1.0);
    probe.compare_bottom(u[0], u[0].add(0.25));
    EXPECT_NEAR(report_of(probe).at_bottom, 0.25, 1e-6);
    probe.forget_comparisons();
    EXPECT_EQ(first_beyond(probe, 0.0), -1);
    probe.compare(2, u[2].mul(NAN));
    EXPECT_EQ(first_beyond(probe, 1.0), 2) << "NaN is off too";
  }
}

TEST(DriftProbe, DoesNotKeepTheTensorsItSamplesAlive) {
  DriftProbe probe(1);
  at::Tensor u = random_tensor({1000}, at::kDouble, 1);
  probe.remember(0, u);
  EXPECT_EQ(u.storage().use_count(), 1u);
}

TEST(GradientSlots, SumsInTheOrderOfBranchesWhateverComesFirst) {
  const at::Tensor leaf = random_tensor({1}, at::kFloat, 1);
  auto run = [&](std::vector<int> order) {
    std::vector<int> blocks;
    GradientSlots slots({{leaf, "shared", true, {3, 2, 1, 0}}}, 4,
                        [&](const BlockGradients& block) { blocks.push_back(block.block); });
    // In floating point (1e8 + 1) - 1e8 and 1e8 - 1e8 + 1 differ: the order shows.
    const float values[] = {1.0f, -1e8f, 1.0f, 1e8f};
    for (int k : order) slots.deliver(k, {0}, {at::full({1}, values[k])});
    EXPECT_EQ(blocks, (std::vector<int>{1, 0}));
    return slots.take()[0].item<float>();
  };
  const float expected = run({3, 2, 1, 0});
  EXPECT_EQ(expected, ((1e8f + 1.0f) + -1e8f) + 1.0f);
  EXPECT_EQ(run({0, 1, 2, 3}), expected);
  EXPECT_EQ(run({2, 0, 3, 1}), expected);
}

TEST(IntraOpThreads, IsOfOneThreadOnly) {
  const int outside = at::get_num_threads();
  {
    IntraOpThreads one(1);
    EXPECT_EQ(at::get_num_threads(), 1);
    int other = 0;
    std::thread([&] { other = at::get_num_threads(); }).join();
    EXPECT_EQ(other, outside);
  }
  EXPECT_EQ(at::get_num_threads(), outside);
}

TEST(TorchCpuLanes, GivesLanesTheirThreadsAndTheCallersState) {
  TorchCpuLanes lanes(2, 1);
  TaskGraph graph;
  graph.add({.lane = 0});
  graph.add({.lane = 1});
  int threads[2] = {0, 0};
  bool graph_mode[2] = {true, true};
  c10::AutoGradMode no_graph(false);
  lanes.run(graph, [&](const Task& task) {
    threads[task.lane] = at::get_num_threads();
    graph_mode[task.lane] = c10::GradMode::is_enabled();
  });
  EXPECT_EQ(threads[0], 1);
  EXPECT_EQ(threads[1], 1);
  EXPECT_FALSE(graph_mode[0]);
  EXPECT_FALSE(graph_mode[1]);
}

}  // namespace
}  // namespace pareprop
