#include "pareprop/memory/device_pools.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pareprop::memory {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(DevicePools, SmallTensorsShareSegmentsOfTwoMebibytes) {
  DevicePools pools;
  DevicePools::Piece* const first = pools.take(0, 1);
  EXPECT_EQ(DevicePools::bytes(*first), 512);
  EXPECT_EQ(DevicePools::bytes(*pools.take(0, 513)), 1024);
  EXPECT_EQ(DevicePools::bytes(*pools.take(0, kMiB)), std::int64_t{kMiB});
  EXPECT_EQ(pools.usage().reserved, std::int64_t{2 * kMiB});
  EXPECT_EQ(pools.usage().allocated, std::int64_t{kMiB} + 1536);
  pools.take(0, kMiB);  // not enough is left
  EXPECT_EQ(pools.usage().reserved, std::int64_t{4 * kMiB});
  pools.give_back(first);
  EXPECT_EQ(pools.usage().allocated, std::int64_t{2 * kMiB} + 1024);
  EXPECT_EQ(pools.usage().peak_allocated, std::int64_t{2 * kMiB} + 1536);
}

TEST(DevicePools, LargeTensorsHaveSegmentsOfTwentyMebibytesOrTheirOwn) {
  DevicePools pools;
  DevicePools::Piece* const piece = pools.take(0, 3 * kMiB);
  EXPECT_EQ(DevicePools::bytes(*piece), std::int64_t{3 * kMiB});
  EXPECT_EQ(pools.usage().reserved, std::int64_t{20 * kMiB});
  EXPECT_EQ(DevicePools::bytes(*pools.take(0, 9 * kMiB)), std::int64_t{9 * kMiB});
  // 8 MiB are left. Less than 1 MiB of it is no piece of its own: the tensor has it.
  EXPECT_EQ(DevicePools::bytes(*pools.take(0, 15 * kMiB / 2)), std::int64_t{8 * kMiB});
  EXPECT_EQ(pools.usage().reserved, std::int64_t{20 * kMiB});
  EXPECT_EQ(DevicePools::bytes(*pools.take(0, 11 * kMiB)), std::int64_t{12 * kMiB});
  EXPECT_EQ(pools.usage().reserved, std::int64_t{32 * kMiB});
}

TEST(DevicePools, StreamsHaveTheirOwn) {
  DevicePools pools;
  pools.give_back(pools.take(0, 3 * kMiB));
  pools.give_back(pools.take(1, 3 * kMiB));
  EXPECT_EQ(pools.usage().reserved, std::int64_t{40 * kMiB});
  pools.take(1, 18 * kMiB);
  EXPECT_EQ(pools.usage().reserved, std::int64_t{40 * kMiB});
}

TEST(DevicePools, TheSmallestPieceThatFitsIsTaken) {
  DevicePools pools;
  DevicePools::Piece* const six = pools.take(0, 6 * kMiB);
  pools.take(0, 2 * kMiB);
  DevicePools::Piece* const four = pools.take(0, 4 * kMiB);
  pools.take(0, 8 * kMiB);
  pools.give_back(six);
  pools.give_back(four);
  EXPECT_EQ(DevicePools::bytes(*pools.take(0, 5 * kMiB / 2)), std::int64_t{5 * kMiB / 2});
  EXPECT_EQ(DevicePools::bytes(*pools.take(0, 6 * kMiB)), std::int64_t{6 * kMiB});
  EXPECT_EQ(pools.usage().reserved, std::int64_t{20 * kMiB});
}

TEST(DevicePools, FreeNeighboursJoinAndWholeSegmentsCanGo) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  DevicePools pools;
  std::vector<DevicePools::Piece*> taken;
  std::int64_t bytes = 0;
  for (int i = 0; i < 5000; ++i) {
    if (taken.empty() || below(5) < 3) {
      const std::size_t most = below(2) == 0 ? kMiB / 2 : 30 * kMiB;
      taken.push_back(pools.take(static_cast<int>(below(3)), below(most)));
      bytes += DevicePools::bytes(*taken.back());
    } else {
      std::swap(taken[below(taken.size())], taken.back());
      bytes -= DevicePools::bytes(*taken.back());
      pools.give_back(taken.back());
      taken.pop_back();
    }
    ASSERT_EQ(pools.usage().allocated, bytes);
    ASSERT_GE(pools.usage().reserved, bytes);
  }
  for (DevicePools::Piece* const piece : taken) pools.give_back(piece);
  EXPECT_EQ(pools.usage().allocated, 0);
  EXPECT_GT(pools.usage().reserved, 0);
  pools.empty_cache();
  EXPECT_EQ(pools.usage().reserved, 0);
  pools.reset_peaks();
  EXPECT_EQ(pools.usage().peak_reserved, 0);
}

}  // namespace
}  // namespace pareprop::memory
