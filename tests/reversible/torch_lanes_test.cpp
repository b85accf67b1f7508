#include "pareprop/reversible/torch_lanes.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <thread>

extern "C" __attribute__((weak)) int MKL_Get_Max_Threads();

namespace pareprop {
namespace {

struct Counts {
  int openmp = 0;
  int mkl = 0;

  bool operator==(const Counts&) const = default;
};

// MKL's is OpenMP's where torch has none.
Counts counts() {
  const int openmp = omp_get_max_threads();
  return {openmp, MKL_Get_Max_Threads != nullptr ? MKL_Get_Max_Threads() : openmp};
}

void PrintTo(const Counts& counts, std::ostream* out) {
  *out << counts.openmp << " OpenMP, " << counts.mkl << " MKL";
}

// at::set_num_threads cannot be undone in a process: for the other tests it stays at what it was.
class TorchLanes : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(4); }
  void TearDown() override { at::set_num_threads(before_); }

  const int before_ = at::get_num_threads();
};

TEST_F(TorchLanes, EachLaneHasItsShareAlsoAfterTorchWasToldACount) {
  TaskGraph graph;
  std::array<Counts, 2> seen;
  for (const int lane : {0, 1}) {
    graph.add({.kind = TaskKind::gradient, .branch = lane, .lane = lane});
  }
  TorchCpuLanes(2).run(
      graph, [&](const Task& task) { seen[static_cast<std::size_t>(task.lane)] = counts(); });
  EXPECT_EQ(seen[0], (Counts{2, 2}));
  EXPECT_EQ(seen[1], (Counts{2, 2}));
  EXPECT_EQ(counts(), (Counts{4, 4}));
}

TEST_F(TorchLanes, AScopeEndsWithWhatWasBefore) {
  const auto check = [](const Counts& before) {
    {
      const IntraOpThreads one(1);
      EXPECT_EQ(counts(), (Counts{1, 1}));
      {
        const IntraOpThreads three(3);
        EXPECT_EQ(counts(), (Counts{3, 3}));
      }
      EXPECT_EQ(counts(), (Counts{1, 1}));
    }
    EXPECT_EQ(counts(), before);
  };
  check({4, 4});
  std::thread([&] { check({4, 4}); }).join();
}

}  // namespace
}  // namespace pareprop
