#include "pareprop/distributed/shares.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/distributed/worker_process.h"

namespace pareprop::distributed {
namespace {

std::vector<at::Tensor> of_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<at::Tensor> tensors;
  for (const std::int64_t size : sizes) tensors.push_back(at::empty({size}));
  return tensors;
}

TEST(Shares, AreAsEqualAsWholeParametersAllow) {
  EXPECT_EQ(owners_of(of_sizes({1, 5, 3, 3}), 2), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(owners_of(of_sizes({1, 1, 10}), 3), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(owners_of({}, 3), std::vector<int>{});
  EXPECT_EQ(owners_of(of_sizes({4, 4}), 1), (std::vector<int>{0, 0}));
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 100; ++i) {
    const int processes = 1 + static_cast<int>(random() % 8);
    std::vector<std::int64_t> sizes(1 + random() % 60);
    for (std::int64_t& size : sizes) size = 1 + static_cast<std::int64_t>(random() % 1000);
    const std::vector<at::Tensor> parameters = of_sizes(sizes);
    const std::vector<int> owners = owners_of(parameters, processes);
    std::vector<std::int64_t> shares(static_cast<std::size_t>(processes));
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      shares[static_cast<std::size_t>(owners[p])] += sizes[p];
    }
    const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    EXPECT_LE(*most - *least, largest);
    std::size_t divided = 0;
    for (int rank = 0; rank < processes; ++rank) {
      divided += share_of(parameters, rank, processes).size();
    }
    EXPECT_EQ(divided, sizes.size());
  }
}

TEST(Shares, OfOneProcessAreAll) {
  const auto group = one_process();
  const io::NamedTensors parameters = {{"a", at::empty({3})}, {"b", at::empty({2})}};
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients}) {
    Shares shares(parameters, *group, shard);
    EXPECT_TRUE(shares.holds_all());
    EXPECT_FALSE(shares.divides_gradients());
    EXPECT_EQ(shares.own().size(), 2U);
    EXPECT_EQ(shares.joined({1.5, 2.5}), (std::vector<double>{1.5, 2.5}));
    shares.gather_weights();
  }
}

TEST(Shares, HaveNames) {
  EXPECT_EQ(parse_shard("gradients"), Shard::gradients);
  try {
    parse_shard("weights");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "expected none, state or gradients, got 'weights'");
  }
}

TEST(Shares, ReachAllProcesses) {
  for (const char* processes : {"2", "3"}) {
    testing::Worker worker({"--nproc", processes, "shares", "60000"});
    EXPECT_EQ(worker.wait(), 0) << worker.errors();
  }
}

}  // namespace
}  // namespace pareprop::distributed
