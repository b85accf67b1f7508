#include "pareprop/memory/block_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "pareprop/memory/poison.h"

namespace pareprop::memory {
namespace {

constexpr std::size_t kKib = 1024;
constexpr std::size_t kMib = 1024 * kKib;

std::int64_t page() { return sysconf(_SC_PAGESIZE); }

bool aligned(const void* data, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(data) % to == 0;
}

bool is_mapped(void* data) {
  unsigned char resident = 0;
  void* const start = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) &
                                              ~static_cast<std::uintptr_t>(page() - 1));
  return mincore(start, 1, &resident) == 0;
}

TEST(BlockPool, AlignsDataAndLargeDataToHugePages) {
  BlockPool pool;
  std::vector<Block*> blocks;
  for (std::size_t bytes :
       {kSmallestLarge, 100 * kKib + 1, 2 * kMib - 1, 2 * kMib, 3 * kMib + 5, 17 * kMib}) {
    Block* block = pool.take(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(aligned(block->data(), 64)) << bytes;
    EXPECT_TRUE(aligned(block, bytes < 2 * kMib ? 4096 : 2 * kMib)) << bytes;
    std::memset(block->data(), 0x5a, bytes);
    blocks.push_back(block);
  }
  for (Block* each : blocks) pool.give_back(each);
}

TEST(BlockPool, AsksForHugePagesForLargeBlocks) {
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(setting, modes);
  if (modes.find("[never]") != std::string::npos || modes.empty()) GTEST_SKIP() << "no huge pages";
  BlockPool pool;
  Block* block = pool.take(8 * kMib);
  const auto address = reinterpret_cast<std::uintptr_t>(block->data());
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  bool advised = false;
  while (std::getline(maps, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= address && address < end;
    }
    if (inside && line.starts_with("VmFlags:")) advised = line.find(" hg") != std::string::npos;
  }
  EXPECT_TRUE(advised);
  pool.give_back(block);
}

TEST(BlockPool, GivesOutFreedBlocksAgainLastFreedFirst) {
  BlockPool pool;
  Block* first = pool.take(kMib);
  Block* second = pool.take(kMib);
  EXPECT_EQ(pool.usage().misses, 2);
  EXPECT_EQ(pool.usage().unused, 0);
  pool.give_back(first);
  pool.give_back(second);
  EXPECT_EQ(pool.usage().unused, pool.usage().mapped);
  EXPECT_EQ(pool.take(kMib), second);
  EXPECT_EQ(pool.take(kMib), first);
  EXPECT_EQ(pool.usage().hits, 2);
  EXPECT_EQ(pool.usage().misses, 2);
  EXPECT_EQ(pool.usage().mapped, static_cast<std::int64_t>(2 * kMib) + 2 * page());
  pool.give_back(first);
  pool.give_back(second);
}

TEST(BlockPool, AQuarterLargerServesMoreDoesNot) {
  BlockPool pool;
  Block* large = pool.take(10 * kMib);
  pool.give_back(large);
  Block* nearly = pool.take(8 * kMib);
  EXPECT_EQ(nearly, large);
  EXPECT_EQ(nearly->asked, 8 * kMib);
  pool.give_back(nearly);
  Block* small = pool.take(8 * kMib - 1);
  EXPECT_NE(small, large);
  Block* larger = pool.take(11 * kMib);
  EXPECT_NE(larger, large);
  pool.give_back(small);
  pool.give_back(larger);
}

TEST(BlockPool, TrimReturnsEverythingUnused) {
  BlockPool pool;
  Block* kept = pool.take(3 * kMib);
  Block* dropped = pool.take(5 * kMib);
  std::memset(kept->data(), 7, 3 * kMib);
  void* const gone = dropped->data();
  pool.give_back(dropped);
  EXPECT_TRUE(is_mapped(gone));
  pool.trim();
  EXPECT_FALSE(is_mapped(gone));
  EXPECT_EQ(pool.usage().unused, 0);
  EXPECT_EQ(pool.usage().mapped, static_cast<std::int64_t>(3 * kMib) + page());
  EXPECT_EQ(static_cast<unsigned char*>(kept->data())[3 * kMib - 1], 7);
  pool.give_back(kept);
  pool.trim();
  EXPECT_EQ(pool.usage().mapped, 0);
}

TEST(BlockPool, TheLongestUnusedLeavesFirst) {
  BlockPool pool;
  Block* old = pool.take(80 * kMib);
  Block* young = pool.take(20 * kMib);
  void* const old_data = old->data();
  pool.give_back(old);
  pool.give_back(young);
  // 100 MiB are mapped and the limit is 176.5: the second of these must make room.
  Block* a = pool.take(60 * kMib);
  EXPECT_TRUE(is_mapped(old_data));
  Block* b = pool.take(30 * kMib);
  EXPECT_FALSE(is_mapped(old_data));
  EXPECT_EQ(pool.usage().unused, static_cast<std::int64_t>(20 * kMib) + page());
  pool.give_back(a);
  pool.give_back(b);
}

// Phases of different sizes, as with images or sequences that grow: without a bound the pool would
// keep the blocks of all of them.
TEST(BlockPool, MappedBytesAreBoundedWhenSizesChange) {
  BlockPool pool;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (int phase = 0; phase < 12; ++phase) {
    const std::size_t bytes = (3 + static_cast<std::size_t>(phase)) * kMib + 12345;
    const std::size_t count = 300 * kMib / bytes;
    for (int round = 0; round < 3; ++round) {
      std::vector<Block*> blocks;
      for (std::size_t i = 0; i < count; ++i) {
        blocks.push_back(pool.take(bytes));
        live += static_cast<std::int64_t>(bytes);
        peak = std::max(peak, live);
        ASSERT_LE(pool.usage().mapped, BlockPool::limit(peak));
      }
      for (Block* each : blocks) pool.give_back(each);
      live -= static_cast<std::int64_t>(bytes * count);
    }
  }
  EXPECT_GT(pool.usage().hits, 2 * pool.usage().misses / 3);
  EXPECT_EQ(live, 0);
  pool.trim();
  EXPECT_EQ(pool.usage().mapped, 0);
}

// The worst the rules allow: see Note [What the pool keeps].
TEST(BlockPool, RandomSizesStayWithinTheBound) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  BlockPool pool;
  std::vector<Block*> blocks;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (int i = 0; i < 30000; ++i) {
    if (blocks.empty() || (random() % 100 < 52 && blocks.size() < 400)) {
      const std::size_t low = kSmallestLarge << (random() % 7);
      blocks.push_back(pool.take(low + random() % low));
      live += static_cast<std::int64_t>(blocks.back()->asked);
      peak = std::max(peak, live);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      live -= static_cast<std::int64_t>(blocks.back()->asked);
      pool.give_back(blocks.back());
      blocks.pop_back();
    }
    const auto pages = static_cast<std::int64_t>(400) * page();
    ASSERT_LE(pool.usage().mapped, std::max(BlockPool::limit(peak), peak + peak / 4 + pages));
    ASSERT_GE(pool.usage().mapped - pool.usage().unused, live);
  }
  EXPECT_GT(pool.usage().hits, pool.usage().misses);
  for (Block* each : blocks) pool.give_back(each);
  EXPECT_EQ(pool.usage().mapped, pool.usage().unused);
}

TEST(BlockPool, ARequestThatFailsLeavesNoTrace) {
  BlockPool pool;
  // 64 TiB: more than overcommitting kernels give, and half of the address space.
  Block* block = pool.take(kLargest);
  if (block != nullptr) {
    pool.give_back(block);
    pool.trim();
    GTEST_SKIP() << "this kernel maps 64 TiB";
  }
  EXPECT_EQ(pool.usage().mapped, 0);
  EXPECT_EQ(pool.usage().misses, 0);
  // Nor has it raised what may be kept: of 100 blocks of new sizes, not all stay.
  for (std::size_t i = 0; i < 100; ++i) {
    Block* each = pool.take(kMib << (i % 6));
    Block* other = pool.take((kMib << (i % 6)) / 16 * 13);
    pool.give_back(each);
    pool.give_back(other);
    ASSERT_LE(pool.usage().mapped, BlockPool::limit(static_cast<std::int64_t>(58 * kMib)));
  }
}

#ifndef PAREPROP_ADDRESS_SANITIZER  // it needs address space for itself
std::size_t address_space() {
  std::ifstream status("/proc/self/statm");
  std::size_t pages = 0;
  status >> pages;
  return pages * static_cast<std::size_t>(page());
}

TEST(BlockPoolDeathTest, WhatIsCachedIsReturnedBeforeGivingUp) {
  EXPECT_EXIT(
      {
        BlockPool pool;
        pool.give_back(pool.take(256 * kMib));
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = address_space() + 32 * kMib;
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
        // Within the bound of the pool, so only the failing system makes it let go.
        if (pool.take(40 * kMib) == nullptr) _exit(2);
        if (pool.usage().unused != 0) _exit(3);
        if (pool.take(512 * kMib) != nullptr) _exit(4);
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
}
#else
TEST(BlockPoolDeathTest, AddressSanitizerSeesUseAfterFreeAndOverflow) {
  BlockPool pool;
  Block* block = pool.take(kMib + 100);
  auto* const bytes = static_cast<volatile char*>(block->data());
  bytes[kMib + 99] = 1;
  EXPECT_DEATH(bytes[kMib + 100] = 1, "use-after-poison");
  pool.give_back(block);
  EXPECT_DEATH(bytes[0] = 1, "use-after-poison");
  EXPECT_EQ(pool.take(kMib), block);
  bytes[0] = 1;
  pool.give_back(block);
}
#endif

}  // namespace
}  // namespace pareprop::memory
