#include "pareprop/memory/meter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <set>
#include <thread>
#include <vector>

namespace pareprop::memory {
namespace {

TEST(Meter, TagsHaveDistinctNames) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kTags; ++i) names.insert(name(static_cast<Tag>(i)));
  EXPECT_EQ(names.size(), kTags);
  EXPECT_EQ(name(Tag::parameters), "parameters");
  EXPECT_EQ(name(Tag::other), "other");
}

TEST(Meter, TagScopesNestAndBelongToTheirThread) {
  EXPECT_EQ(current_tag(), Tag::other);
  {
    const TagScope outer(Tag::tape);
    {
      const TagScope inner(Tag::streams);
      EXPECT_EQ(current_tag(), Tag::streams);
      std::thread([] { EXPECT_EQ(current_tag(), Tag::other); }).join();
    }
    EXPECT_EQ(current_tag(), Tag::tape);
  }
  EXPECT_EQ(current_tag(), Tag::other);
}

TEST(Meter, CountsTagTotalAndActivation) {
  const Usage before = usage();
  detail::count(Counted::cpu, Tag::parameters, 1000);
  detail::count(Counted::cpu, Tag::tape, 300);
  Usage now = usage();
  EXPECT_EQ(now.live_of(Tag::parameters) - before.live_of(Tag::parameters), 1000);
  EXPECT_EQ(now.live_of(Tag::tape) - before.live_of(Tag::tape), 300);
  EXPECT_EQ(now.total_live - before.total_live, 1300);
  EXPECT_EQ(now.activation_live - before.activation_live, 300);
  detail::count(Counted::cpu, Tag::tape, -300);
  detail::count(Counted::cpu, Tag::parameters, -1000);
  now = usage();
  EXPECT_EQ(now.live, before.live);
  EXPECT_EQ(now.total_live, before.total_live);
  EXPECT_EQ(now.activation_live, before.activation_live);
}

TEST(Meter, WhichTagsAreActivations) {
  for (std::size_t i = 0; i < kTags; ++i) {
    const Tag tag = static_cast<Tag>(i);
    const std::int64_t before = usage().activation_live;
    detail::count(Counted::cpu, tag, 8);
    const bool counted = usage().activation_live == before + 8;
    detail::count(Counted::cpu, tag, -8);
    EXPECT_EQ(counted, tag == Tag::streams || tag == Tag::tape || tag == Tag::other) << name(tag);
  }
}

TEST(Meter, PeaksStayUntilTheyAreReset) {
  reset_peaks();
  const Usage before = usage();
  EXPECT_EQ(before.peak, before.live);
  detail::count(Counted::cpu, Tag::streams, 500);
  detail::count(Counted::cpu, Tag::streams, -500);
  detail::count(Counted::cpu, Tag::optimizer, 200);
  Usage now = usage();
  EXPECT_EQ(now.peak_of(Tag::streams) - before.live_of(Tag::streams), 500);
  EXPECT_EQ(now.peak_of(Tag::optimizer) - before.live_of(Tag::optimizer), 200);
  // The two were never alive together.
  EXPECT_EQ(now.total_peak - before.total_live, 500);
  EXPECT_EQ(now.activation_peak - before.activation_live, 500);
  reset_peaks();
  now = usage();
  EXPECT_EQ(now.peak, now.live);
  EXPECT_EQ(now.total_peak, before.total_live + 200);
  detail::count(Counted::cpu, Tag::optimizer, -200);
}

TEST(Meter, MoveLeavesTheTotalAloneAndItsPeakToo) {
  detail::count(Counted::cpu, Tag::tape, 700);
  reset_peaks();
  const Usage before = usage();
  detail::move(Counted::cpu, Tag::tape, Tag::gradients, 700);
  const Usage now = usage();
  EXPECT_EQ(now.live_of(Tag::tape), before.live_of(Tag::tape) - 700);
  EXPECT_EQ(now.live_of(Tag::gradients), before.live_of(Tag::gradients) + 700);
  EXPECT_EQ(now.activation_live, before.activation_live - 700);
  EXPECT_EQ(now.total_live, before.total_live);
  EXPECT_EQ(now.total_peak, before.total_peak);
  detail::move(Counted::cpu, Tag::gradients, Tag::tape, 700);
  EXPECT_EQ(usage().live, before.live);
  detail::move(Counted::cpu, Tag::tape, Tag::tape, 700);
  EXPECT_EQ(usage().live, before.live);
  detail::count(Counted::cpu, Tag::tape, -700);
}

TEST(Meter, ExactUnderConcurrency) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20000;
  reset_peaks();
  const Usage before = usage();
  // At the barrier every thread holds 10 bytes; at no time more than 17.
  std::barrier all_hold(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Tag tag = static_cast<Tag>(static_cast<std::size_t>(t) % kTags);
      detail::count(Counted::cpu, tag, 10);
      all_hold.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        detail::count(Counted::cpu, Tag::tape, 7);
        detail::move(Counted::cpu, Tag::tape, tag, 7);
        detail::count(Counted::cpu, tag, -7);
      }
      detail::count(Counted::cpu, tag, -10);
    });
  }
  for (std::thread& each : threads) each.join();
  const Usage now = usage();
  EXPECT_EQ(now.live, before.live);
  EXPECT_EQ(now.total_live, before.total_live);
  EXPECT_EQ(now.activation_live, before.activation_live);
  EXPECT_GE(now.total_peak - before.total_live, 10 * kThreads);
  EXPECT_LE(now.total_peak - before.total_live, 17 * kThreads);
}

// When all only grow, the peak ends at the live value and never goes back on the way: one written
// without compare-exchange would be overwritten by a slower thread.
TEST(Meter, ThePeakOfThreadsThatGrowTogetherIsTheirSum) {
  constexpr int kThreads = 4;
  constexpr int kAdds = 500000;
  reset_peaks();
  const Usage before = usage();
  std::atomic<int> backwards{0};
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      std::int64_t seen = 0;
      for (int i = 0; i < kAdds; ++i) {
        detail::count(Counted::cpu, Tag::streams, 3);
        const std::int64_t peak = usage().peak_of(Tag::streams);
        if (peak < seen) ++backwards;
        seen = peak;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  const Usage now = usage();
  detail::count(Counted::cpu, Tag::streams, -3 * kThreads * kAdds);
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(now.live_of(Tag::streams) - before.live_of(Tag::streams), 3 * kThreads * kAdds);
  EXPECT_EQ(now.peak_of(Tag::streams), now.live_of(Tag::streams));
  EXPECT_EQ(now.total_peak, now.total_live);
  EXPECT_EQ(now.activation_peak, now.activation_live);
}

}  // namespace
}  // namespace pareprop::memory
