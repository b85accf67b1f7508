#include "pareprop/data/prefetch.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "pareprop/data/images/image_batches.h"
#include "pareprop/data/images/synthetic_images.h"
#include "tests/data/expect_part.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::expect_part;

// Batch n is the number n, after `before(n)`.
class Counting final : public Batches {
 public:
  explicit Counting(std::function<void(std::int64_t)> before = {}) : before_(std::move(before)) {}
  std::int64_t per_epoch() const override { return 10; }
  Batch make(std::int64_t number) const override {
    if (before_) before_(number);
    return {at::full({1}, number, at::kLong), {}};
  }

 private:
  std::function<void(std::int64_t)> before_;
};

std::int64_t number_of(const Batch& batch) { return batch.input.item<std::int64_t>(); }

// A door that opens once.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(Prefetcher, GivesTheSameBitsWithAnyNumberOfWorkers) {
  const auto source =
      synthetic_images({.height = 12, .width = 10, .classes = 5, .train = 37, .test = 1}).train;
  ImageBatchesOptions options{.batch = 4, .input = {8, 8}};
  options.augment.crop = Crop::resized;
  options.augment.erase = 0.5;
  options.mixing = {.mixup = 0.5, .cutmix = 0.5};
  const auto batches = std::make_shared<ImageBatches>(source, options);
  std::vector<Batch> expected;
  for (int n = 3; n < 23; ++n) expected.push_back(batches->make(n));
  for (const int workers : {0, 1, 3}) {
    Prefetcher prefetcher(batches, {.workers = workers, .ahead = 5, .first = 3});
    for (const Batch& batch : expected) {
      const Batch got = prefetcher.next();
      ASSERT_TRUE(got.input.equal(batch.input)) << workers;
      ASSERT_TRUE(got.target.equal(batch.target)) << workers;
    }
    EXPECT_EQ(prefetcher.number(), 23);
    EXPECT_GT(prefetcher.waited_seconds(), 0.0);
  }
}

TEST(Prefetcher, DeliversInOrderWhenALaterBatchIsReadyFirst) {
  Gate gate;
  const auto slow_first = std::make_shared<Counting>([&](std::int64_t number) {
    if (number == 0) gate.pass();
    if (number == 1) gate.open();
  });
  Prefetcher prefetcher(slow_first, {.workers = 2, .ahead = 2});
  for (int n = 0; n < 20; ++n) ASSERT_EQ(number_of(prefetcher.next()), n);
}

TEST(Prefetcher, IsNeverFurtherAheadThanAllowed) {
  std::atomic<std::int64_t> taken{0}, farthest{0};
  const auto watched = std::make_shared<Counting>([&](std::int64_t number) {
    std::int64_t ahead = number - taken, before = farthest;
    while (ahead > before && !farthest.compare_exchange_weak(before, ahead)) {
    }
  });
  {
    Prefetcher prefetcher(watched, {.workers = 3, .ahead = 4});
    for (int n = 0; n < 200; ++n) {
      ++taken;  // before: a batch may be begun as soon as this one is given
      prefetcher.next();
    }
  }
  EXPECT_LE(farthest, 4);
}

TEST(Prefetcher, ThrowsWhatAWorkerThrewAtItsPlaceAndGoesOn) {
  const auto failing = std::make_shared<Counting>([](std::int64_t number) {
    if (number == 2) throw std::runtime_error("batch two");
  });
  for (const int workers : {0, 1, 3}) {
    Prefetcher prefetcher(failing, {.workers = workers});
    EXPECT_EQ(number_of(prefetcher.next()), 0);
    EXPECT_EQ(number_of(prefetcher.next()), 1);
    EXPECT_EQ(message_of<std::runtime_error>([&] { prefetcher.next(); }), "batch two");
    EXPECT_EQ(number_of(prefetcher.next()), 3);
  }
}

TEST(Prefetcher, StopsWithoutMakingMore) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<std::int64_t> made{0};
    const auto counted = std::make_shared<Counting>([&](std::int64_t) { ++made; });
    { Prefetcher prefetcher(counted, {.workers = 3, .ahead = 1000000}); }
    const std::int64_t after = made;
    EXPECT_LT(after, 1000000);
    EXPECT_EQ(made, after);
  }
}

TEST(Prefetcher, StopsWhenNothingWasTakenAndAllIsReady) {
  Gate last;
  const auto counted = std::make_shared<Counting>([&](std::int64_t number) {
    if (number == 3) last.open();
  });
  Prefetcher prefetcher(counted, {.workers = 2, .ahead = 4});
  last.pass();
}

TEST(Prefetcher, MakesNothingFromTheEndOn) {
  for (const int workers : {0, 2}) {
    std::atomic<std::int64_t> largest{0};
    const auto counted = std::make_shared<Counting>([&](std::int64_t number) {
      std::int64_t before = largest;
      while (number > before && !largest.compare_exchange_weak(before, number)) {
      }
    });
    {
      Prefetcher prefetcher(counted, {.workers = workers, .ahead = 8, .first = 2, .end = 5});
      for (int n = 2; n < 5; ++n) EXPECT_EQ(number_of(prefetcher.next()), n);
      expect_part(message_of<std::out_of_range>([&] { prefetcher.next(); }), "the last is 4");
    }
    EXPECT_EQ(largest, 4);
  }
}

TEST(Prefetcher, WorkersComputeWithOneThreadAndLeaveTheCallersCount) {
  const int before = at::get_num_threads();
  std::atomic<int> threads{0};
  const auto asking =
      std::make_shared<Counting>([&](std::int64_t) { threads = at::get_num_threads(); });
  Prefetcher prefetcher(asking, {.workers = 1});
  prefetcher.next();
  EXPECT_EQ(threads, 1);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(Prefetcher, RefusesWhatCannotBe) {
  const auto batches = std::make_shared<Counting>();
  const auto error = [&](const PrefetchOptions& options) {
    return message_of<std::invalid_argument>([&] { Prefetcher(batches, options); });
  };
  expect_part(error({.workers = -1}), "-1 workers");
  expect_part(error({.ahead = 0}), "expected 1 or more batches ahead, got 0");
  expect_part(error({.first = -1}), "the first batch is -1");
  expect_part(error({.first = 5, .end = 4}), "the end 4");
  expect_part(message_of<std::invalid_argument>([] { Prefetcher(nullptr); }), "no batches");
}

TEST(Prefetcher, OutOfMemoryInAThreadIsAMessage) {
  for (const int workers : {0, 2}) {
    for (const bool of_torch : {false, true}) {
      Prefetcher batches(std::make_shared<Counting>([&](std::int64_t number) {
                           if (number != 1) return;
                           if (!of_torch) throw std::bad_alloc();
                           C10_THROW_ERROR(OutOfMemoryError, "no memory");
                         }),
                         {.workers = workers});
      EXPECT_EQ(number_of(batches.next()), 0);
      EXPECT_EQ(message_of<std::runtime_error>([&] { batches.next(); }),
                "out of memory while batch 1 was made; use a smaller batch or fewer workers");
      EXPECT_EQ(number_of(batches.next()), 2);
    }
  }
}

TEST(Prefetcher, ExceptionsOfAnyTypeReachTheCaller) {
  Prefetcher batches(std::make_shared<Counting>([](std::int64_t) { throw 7; }), {.workers = 2});
  EXPECT_THROW(batches.next(), int);
}

#ifndef __SANITIZE_ADDRESS__  // which maps what it likes
// The threads that were started were once destroyed while they ran: "terminate called without an
// active exception".
TEST(PrefetcherDeathTest, ThreadsThatCannotBeStartedAreAMessage) {
  const auto run = [] {
    // Room for a few stacks only.
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    std::ifstream status("/proc/self/statm");
    rlim_t pages = 0;
    status >> pages;
    limit.rlim_cur = pages * static_cast<rlim_t>(getpagesize()) + (rlim_t{64} << 20);
    setrlimit(RLIMIT_AS, &limit);
    try {
      const Prefetcher batches(std::make_shared<Counting>(), {.workers = 500, .ahead = 500});
    } catch (const std::runtime_error& error) {
      std::cerr << error.what() << std::endl;
      _exit(3);
    }
    _exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(3),
              "of 500 threads that make batches could be started .*; use fewer workers");
}
#endif

TEST(Prefetcher, AbsurdNumbersOfWorkersAreRefused) {
  expect_part(message_of<std::invalid_argument>([] {
                const Prefetcher batches(std::make_shared<Counting>(), {.workers = 100000});
              }),
              "there are 100000 workers; expected 0 (none) to 1024");
}

}  // namespace
}  // namespace pareprop::data
