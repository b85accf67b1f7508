#include "pareprop/memory/caching_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pareprop/memory/poison.h"

// The allocator as c10 sees it. With tensors: caching_allocator_torch_test.cpp.
namespace pareprop::memory {
namespace {

class CachingAllocator : public testing::Test {
 protected:
  void SetUp() override {
    install_caching_allocator();
    trim();
  }

  static c10::Allocator& get() { return *c10::GetCPUAllocator(); }
};

TEST_F(CachingAllocator, InstallIsIdempotentAlsoFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back([] { install_caching_allocator(); });
  for (std::thread& each : threads) each.join();
  EXPECT_TRUE(caching_allocator_installed());
  EXPECT_NE(c10::GetCPUAllocator(), c10::GetDefaultCPUAllocator());
  // An allocator of default priority does not push it out.
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  EXPECT_TRUE(caching_allocator_installed());
}

TEST_F(CachingAllocator, AlignsEverySize) {
  for (std::size_t bytes = 1; bytes < (std::size_t{8} << 20); bytes = bytes * 5 / 4 + 1) {
    c10::DataPtr data = get().allocate(bytes);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data.get()) % 64, 0u) << bytes;
    ASSERT_EQ(data.get(), data.get_context());
    ASSERT_TRUE(get().is_simple_data_ptr(data));
    ASSERT_EQ(data.device(), c10::Device(c10::kCPU));
    std::memset(data.get(), 0xff, bytes);
  }
}

TEST_F(CachingAllocator, NothingForZeroBytesAsTorchDoes) {
  const Usage before = usage();
  c10::DataPtr data = get().allocate(0);
  EXPECT_EQ(data.get(), nullptr);
  EXPECT_EQ(c10::GetDefaultCPUAllocator()->allocate(0).get(), nullptr);
  EXPECT_TRUE(retag(data, Tag::tape));
  data.clear();
  EXPECT_EQ(get().raw_allocate(0), nullptr);
  get().raw_deallocate(nullptr);
  EXPECT_EQ(usage().live, before.live);
}

TEST_F(CachingAllocator, RawAllocateAndDeallocate) {
  const Usage before = usage();
  for (std::size_t bytes :
       {std::size_t{10}, std::size_t{65535}, std::size_t{65536}, std::size_t{3} << 20}) {
    void* data = get().raw_allocate(bytes);
    ASSERT_NE(data, nullptr);
    std::memset(data, 1, bytes);
    EXPECT_EQ(usage().total_live - before.total_live, static_cast<std::int64_t>(bytes));
    get().raw_deallocate(data);
    EXPECT_EQ(usage().live, before.live);
  }
}

TEST_F(CachingAllocator, CloneCopies) {
  c10::DataPtr data = get().allocate(100000);
  std::memset(data.get(), 42, 100000);
  c10::DataPtr copy = get().clone(data.get(), 100000);
  EXPECT_NE(copy.get(), data.get());
  EXPECT_EQ(std::memcmp(copy.get(), data.get(), 100000), 0);
}

// Taken for ours, foreign memory ends the program.
TEST_F(CachingAllocator, MemoryOfTheReplacedAllocatorGoesBackToIt) {
  for (std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{8} << 20}) {
    const Usage before = usage();
    void* data = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    get().raw_deallocate(data);
    EXPECT_EQ(usage().live, before.live);
  }
}

// Memory of an allocator that has nothing, not even a readable page, before its data.
class NothingBefore final : public c10::Allocator {
 public:
  static constexpr std::size_t kPages = 2 * 65536;

  c10::DataPtr allocate(std::size_t) override {
    void* const memory = mmap(nullptr, kPages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* const data = static_cast<char*>(memory) + kPages / 2;
    mprotect(data, kPages / 2, PROT_READ | PROT_WRITE);
    return {data, data, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
  inline static int released = 0;

 private:
  static void release(void* data) {
    ++released;
    munmap(static_cast<char*>(data) - kPages / 2, kPages);
  }
};

TEST_F(CachingAllocator, NothingIsReadBeforeMemoryOfOthers) {
  constexpr auto kHighest = std::numeric_limits<std::uint8_t>::max();
  static NothingBefore other;
  c10::SetCPUAllocator(&other, kHighest);
  void* data = get().raw_allocate(1000);
  install_caching_allocator();
  get().raw_deallocate(data);
  EXPECT_EQ(NothingBefore::released, 1);
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kHighest);
  install_caching_allocator();
}

TEST_F(CachingAllocator, HeadersAreOnThePageOfTheirData) {
  std::vector<c10::DataPtr> data;
  const std::int64_t before = usage().total_live;
  for (std::size_t i = 0; i < 5000; ++i) {
    data.push_back(get().allocate(1 + 64 * (i % 70)));
    ASSERT_GE(reinterpret_cast<std::uintptr_t>(data.back().get()) % 4096, 64u);
    std::memset(data.back().get(), 0xff, 1 + 64 * (i % 70));
  }
  data.clear();
  EXPECT_EQ(usage().total_live, before);
}

TEST_F(CachingAllocator, SizesNoSystemHasAreACleanError) {
  const Usage before = usage();
  for (std::size_t bytes :
       {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() - 63,
        std::size_t{1} << 63, std::size_t{1} << 62, std::size_t{1} << 47}) {
    EXPECT_THROW(get().allocate(bytes), c10::OutOfMemoryError) << bytes;
    EXPECT_THROW(get().allocate(bytes), c10::Error) << bytes;
  }
  EXPECT_EQ(usage().live, before.live);
  try {
    get().allocate(std::size_t{1} << 50);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("1125899906842624 bytes"), std::string::npos)
        << error.what();
  }
}

TEST_F(CachingAllocator, AFreedBlockIsGivenOutAgain) {
  const PoolUsage before = pool_usage();
  void* first = nullptr;
  for (int i = 0; i < 5; ++i) {
    c10::DataPtr data = get().allocate(16 << 20);
    if (i == 0) first = data.get();
    EXPECT_EQ(data.get(), first);
  }
  EXPECT_EQ(pool_usage().misses - before.misses, 1);
  EXPECT_EQ(pool_usage().hits - before.hits, 4);
}

TEST_F(CachingAllocator, SmallBlocksAreMeteredButNotPooled) {
  const PoolUsage pool = pool_usage();
  const Usage before = usage();
  c10::DataPtr data = get().allocate(65535);
  EXPECT_EQ(pool_usage().misses, pool.misses);
  EXPECT_EQ(usage().total_live - before.total_live, 65535);
}

TEST_F(CachingAllocator, FreesOnAnotherThreadGoToTheTagOfTheAllocation) {
  const Usage before = usage();
  std::vector<c10::DataPtr> data;
  std::thread([&] {
    const TagScope scope(Tag::streams);
    data.push_back(get().allocate(1000));
    data.push_back(get().allocate(1 << 20));
  }).join();
  EXPECT_EQ(usage().live_of(Tag::streams) - before.live_of(Tag::streams), 1000 + (1 << 20));
  EXPECT_EQ(usage().live_of(Tag::other), before.live_of(Tag::other));
  const TagScope scope(Tag::optimizer);
  data.clear();
  EXPECT_EQ(usage().live, before.live);
}

TEST_F(CachingAllocator, RetagMovesLiveBytes) {
  for (std::size_t size : {std::size_t{1000}, std::size_t{1} << 20}) {
    const auto bytes = static_cast<std::int64_t>(size);
    const Usage before = usage();
    const TagScope scope(Tag::tape);
    c10::DataPtr data = get().allocate(size);
    EXPECT_TRUE(retag(data, Tag::parameters));
    EXPECT_EQ(usage().live_of(Tag::tape), before.live_of(Tag::tape));
    EXPECT_EQ(usage().live_of(Tag::parameters), before.live_of(Tag::parameters) + bytes);
    EXPECT_EQ(usage().activation_live, before.activation_live);
    EXPECT_EQ(usage().total_live, before.total_live + bytes);
    data.clear();
    EXPECT_EQ(usage().live, before.live);
    EXPECT_EQ(usage().total_live, before.total_live);
  }
  c10::DataPtr foreign = c10::GetDefaultCPUAllocator()->allocate(1000);
  const Usage before = usage();
  EXPECT_FALSE(retag(foreign, Tag::parameters));
  EXPECT_FALSE(retag(c10::DataPtr(), Tag::parameters));
  EXPECT_EQ(usage().live, before.live);
}

// Every byte of a block carries a number that belongs to it; two blocks that share memory would
// overwrite each other's.
TEST_F(CachingAllocator, BlocksOfManyThreadsNeverOverlap) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 2000;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Usage before = usage();
  struct Piece {
    c10::DataPtr data;
    std::size_t words = 0;
    std::uint64_t number = 0;
  };
  std::mutex mutex;
  std::vector<Piece> shared;  // freed by whichever thread comes along
  std::atomic<std::uint64_t> numbers{1};
  std::atomic<int> wrong{0};

  const auto check = [&](const Piece& piece) {
    const auto* word = static_cast<const std::uint64_t*>(piece.data.get());
    if (std::any_of(word, word + piece.words, [&](auto w) { return w != piece.number; })) ++wrong;
  };
  const auto work = [&](int thread) {
    std::mt19937_64 random(seed + static_cast<unsigned>(thread));
    const TagScope scope(static_cast<Tag>(static_cast<std::size_t>(thread) % kTags));
    std::vector<Piece> own;
    for (int i = 0; i < kRounds; ++i) {
      if (random() % 2 == 0 || own.empty()) {
        const std::size_t low = std::size_t{1} << (3 + random() % 14);
        Piece piece{{}, low / 8 + random() % low, numbers++};
        piece.data = get().allocate(8 * piece.words);
        std::fill_n(static_cast<std::uint64_t*>(piece.data.get()), piece.words, piece.number);
        own.push_back(std::move(piece));
      } else {
        std::swap(own[random() % own.size()], own.back());
        check(own.back());
        if (random() % 4 == 0) retag(own.back().data, Tag::gradients);
        const std::lock_guard guard(mutex);
        if (random() % 2 == 0) shared.push_back(std::move(own.back()));
        own.pop_back();
        if (shared.size() > 20) {
          check(shared.front());
          std::swap(shared.front(), shared.back());
          shared.pop_back();
        }
      }
      if (random() % 200 == 0) trim();
    }
    for (const Piece& each : own) check(each);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& each : threads) each.join();
  for (const Piece& each : shared) check(each);
  shared.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(usage().live, before.live);
  EXPECT_EQ(usage().total_live, before.total_live);
  trim();
  EXPECT_EQ(pool_usage().unused, 0);
}

TEST_F(CachingAllocator, AForkedChildCanAllocateWhileThreadsOfTheParentDo) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      c10::DataPtr a = get().allocate(100000);
      c10::DataPtr b = get().allocate(200000);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a deadlock ends as a signal
      { c10::DataPtr data = get().allocate(300000); }
      _exit(0);
    }
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      ADD_FAILURE() << "child " << i << " ended with status " << status;
      break;
    }
  }
  stop = true;
  busy.join();
}

#ifdef PAREPROP_ADDRESS_SANITIZER
TEST_F(CachingAllocator, AddressSanitizerSeesWritesBeforeTheData) {
  for (std::size_t bytes : {std::size_t{1000}, std::size_t{1} << 20}) {
    c10::DataPtr data = get().allocate(bytes);
    auto* const begin = static_cast<volatile char*>(data.get());
    EXPECT_DEATH(begin[-1] = 1, "use-after-poison");
    data.clear();
  }
}
#endif

}  // namespace
}  // namespace pareprop::memory
