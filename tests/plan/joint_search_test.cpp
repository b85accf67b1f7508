#include "pareprop/plan/joint_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pareprop/models/registry.h"
#include "tests/plan/random_profile.h"

namespace pareprop::plan {
namespace {

using testing::below;
using testing::for_each_choice;
using testing::Random;
using testing::random_profile;

MakeNetwork network_named(const std::string& name, const models::Overrides& overrides = {}) {
  return [=] { return models::make_model(name, overrides, {.device = at::kMeta}); };
}

TEST(PartCounts, AreDivisorsThatGrowByTwoAtLeast) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(part_counts(1), Counts({1}));
  EXPECT_EQ(part_counts(2), Counts({1, 2}));
  EXPECT_EQ(part_counts(7), Counts({1, 7}));
  EXPECT_EQ(part_counts(12), Counts({1, 2, 4, 12}));
  EXPECT_EQ(part_counts(15), Counts({1, 3, 15}));
  EXPECT_EQ(part_counts(32), Counts({1, 2, 4, 8, 16, 32}));
}

// One way to cut the batch, to keep the optimizer's state and to step.
struct RandomOption {
  Profile profile;
  double parts = 1.0;
  Seconds more;            // that a step takes besides
  std::int64_t bytes = 0;  // that are free for it besides

  Seconds seconds(Seconds micro) const { return parts * micro + more; }
};

TEST(JointSearch, IsTheFastestOfAllChoicesOfAllOptions) {
  Random random(20261118);
  int none = 0, not_asked = 0, not_first = 0;
  constexpr int kCases = 220;
  for (int number = 0; number < kCases; ++number) {
    std::vector<RandomOption> options;
    for (std::int64_t i = 1 + below(random, 4); i > 0; --i) {
      options.push_back({.profile = random_profile(random, 3),
                         .parts = static_cast<double>(1 + below(random, 3)),
                         .more = {static_cast<double>(below(random, 6))},
                         .bytes = below(random, 20)});
    }
    const std::int64_t budget = 10 + below(random, 120);
    std::optional<std::pair<Seconds, std::size_t>> expected;
    std::vector<Seconds> least;
    for (std::size_t i = 0; i < options.size(); ++i) {
      Seconds fastest{1e9};
      for_each_choice(options[i].profile, [&](const Choice& choice) {
        const Seconds taken = options[i].seconds(choice.seconds);
        fastest = std::min(fastest, taken);
        if (choice.peak > budget + options[i].bytes) return;
        if (!expected || std::pair(taken, i) < *expected) expected = {taken, i};
      });
      // Now and then less than that: a bound need not be reached.
      least.push_back(fastest - Seconds{static_cast<double>(below(random, 3))});
    }
    std::size_t asked = 0;
    std::vector<std::optional<Seconds>> answers(options.size());
    const auto found = fastest_option(least, [&](std::size_t i) {
      ++asked;
      const auto choice = choose(options[i].profile, budget + options[i].bytes);
      if (choice) answers[i] = options[i].seconds(choice->seconds);
      return answers[i];
    });
    ASSERT_EQ(found.has_value(), expected.has_value()) << "case " << number;
    none += !found;
    not_asked += static_cast<int>(options.size() - asked);
    if (!found) continue;
    EXPECT_EQ(*found, expected->second) << "case " << number;
    EXPECT_EQ(*answers[*found], expected->first) << "case " << number;
    not_first += *found > 0;
  }
  EXPECT_GT(none, 5);
  EXPECT_LT(none, kCases / 2);
  EXPECT_GT(not_asked, 20);
  EXPECT_GT(not_first, 20);
}

// The search itself, against each of its options alone.
TEST(JointSearch, TakesThePartsThatAreTheFastest) {
  for (const char* name : {"vit_cifar", "swin_cifar"}) {
    constexpr std::int64_t kBatch = 48;
    JointSearch search(network_named(name), {.batch = kBatch, .input_bytes = 12288});
    const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
    JointPlan leanest = search.best(0);
    search.add_figures(leanest);
    const std::int64_t least = leanest.micro.smallest_budget;
    ASSERT_LT(least, search.planner().plan_step(0).smallest_budget) << name;
    EXPECT_FALSE(search.best(least - 1).micro.fits) << name;
    Seconds last{1e30};
    bool cut = false;
    for (int eighths = 0; eighths <= 8; ++eighths) {
      const std::int64_t budget = least + (stored - least) * eighths / 8;
      const JointPlan best = search.best(budget);
      ASSERT_TRUE(best.micro.fits) << name << " " << eighths;
      EXPECT_LE(best.micro.predicted.at_most, budget) << name << " " << eighths;
      EXPECT_LE(best.seconds, last) << name << " " << eighths;
      last = best.seconds;
      cut = cut || best.parts > 1;
      for (const std::int64_t parts : part_counts(kBatch)) {
        const Plan one = search.planner(parts).plan_step(budget);
        if (one.fits) {
          EXPECT_LE(best.seconds.count, search.seconds(one.step, parts).count * (1.0 + 1e-6))
              << name << " " << eighths << " " << parts;
        }
      }
    }
    EXPECT_TRUE(cut) << name;
    const JointPlan whole = search.best(stored);
    EXPECT_EQ(whole.parts, 1) << name;
    EXPECT_TRUE(whole.micro.step.stores_all()) << name;
  }
}

TEST(JointSearch, MeasuredTimesDecide) {
  const StepTimes one{.stacks = {{1.0, 2.0, 3.0}}, .rest = 4.0};
  const auto parts_with = [&](double small_steps) {
    JointSearch search(network_named("vit_cifar", {.depths = {4}}), {.batch = 8});
    SizeTimes times;
    for (const std::int64_t parts : part_counts(8)) {
      const double share = 1.0 / static_cast<double>(parts);
      times[{.samples = 8 / parts, .adds = parts > 1}] =
          scaled(one, share * (parts > 1 ? small_steps : 1.0));
    }
    search.use(times);
    const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
    return search.best(stored - 1).parts;
  };
  EXPECT_GT(parts_with(1.0), 1) << "stored parts recompute nothing";
  EXPECT_EQ(parts_with(2.0), 1) << "small steps are slow here";
}

TEST(JointSearch, WhatWasNotMeasuredIsAsFastAsTheNearest) {
  JointSearch search(network_named("vit_cifar", {.depths = {4}}), {.batch = 8});
  search.use(MacsPerSecond{1e12});
  search.use(SizeTimes{{{.samples = 8}, {.stacks = {{1.0, 2.0, 3.0}}, .rest = 4.0}}});
  const StepPlan stored = search.planner().all(Mode::stored);
  EXPECT_DOUBLE_EQ(search.seconds(stored, 1).count, 12.0);
  EXPECT_NEAR(search.seconds(stored, 4).count, 12.0, 0.01);
  EXPECT_GT(search.seconds(stored, 4), search.seconds(stored, 2));
  EXPECT_GT(search.seconds(stored, 2), search.seconds(stored, 1));
}

TEST(JointSearch, MeasuresFewSizes) {
  JointSearch search(network_named("vit_cifar"), {.batch = 64});
  search.use(MacsPerSecond{1e15});
  const auto samples = [&](std::int64_t budget) {
    std::vector<std::int64_t> all;
    for (const StepSize& size : search.sizes_to_measure(budget)) {
      EXPECT_EQ(size.adds, size.samples < 64);
      all.push_back(size.samples);
    }
    return all;
  };
  Planner& whole = search.planner();
  const auto peak = [&](Mode mode, std::int64_t batch) {
    return whole.predict(whole.all(mode), batch, batch < 64).at_most;
  };
  using Samples = std::vector<std::int64_t>;
  EXPECT_EQ(samples(peak(Mode::stored, 64)), Samples({64, 32}));
  EXPECT_EQ(samples(peak(Mode::stored, 16)).back(), 8);
  EXPECT_EQ(samples(0), Samples());
  search.use(MacsPerSecond{1e3});
  EXPECT_EQ(samples(peak(Mode::stored, 16)), Samples({8})) << "all steps are long";
}

TEST(JointSearch, TakesWhatIsAllowedWhereItHelpsOnly) {
  const Departure lean{.flags = "--optimizer-state bf16", .optimizer_state = copies_of_weights(1)};
  const Departure inside{
      .flags = "--update inside", .optimizer_state = copies_of_weights(2), .updates_inside = true};
  JointSearch search(network_named("vit_cifar"), {.batch = 8}, {lean, inside});
  const std::int64_t weights = [&] {
    std::int64_t bytes = 0;
    for (const at::Tensor& weight : search.planner().network().weights()) {
      bytes += static_cast<std::int64_t>(weight.nbytes());
    }
    return bytes;
  }();
  const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
  EXPECT_FALSE(search.best(stored).departure) << "nothing is gained";
  const JointPlan less = search.best(stored - weights);
  ASSERT_EQ(less.departure, std::optional<std::size_t>(0));
  EXPECT_TRUE(less.micro.step.stores_all());
  EXPECT_EQ(less.parts, 1);
  // As a step that really has that state.
  Planner real(network_named("vit_cifar"), {.batch = 8, .optimizer_state = copies_of_weights(1)});
  EXPECT_EQ(less.micro.predicted.at_most, real.predict(real.all(Mode::stored)).at_most);
  EXPECT_EQ(less.micro.predicted.peak_of(memory::Tag::optimizer), weights);
  EXPECT_EQ(search.best_with(1, stored).parts, 1) << "gradients are not kept between parts";
  const JointPlan none = search.best(1000);
  EXPECT_FALSE(none.micro.fits);
  EXPECT_FALSE(none.departure);
}

TEST(JointSearch, UpdatesInsideAreNotCut) {
  JointSearch search(network_named("vit_cifar"), {.batch = 8, .updates_inside = true});
  const std::int64_t least = search.planner().plan_step(0).smallest_budget;
  EXPECT_FALSE(search.best(least - 1).micro.fits);
  EXPECT_EQ(search.best(least).parts, 1);
}

TEST(JointSearch, PricesAreThoseOfPlansWithMoreOrLess) {
  JointSearch search(network_named("vit_cifar"), {.batch = 16});
  const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
  JointPlan leanest = search.best(0);
  search.add_figures(leanest);
  const std::int64_t least = leanest.micro.smallest_budget;
  const JointPlan middle = search.best(least + (stored - least) / 8);
  const auto up = search.next_up(middle), down = search.next_down(middle);
  ASSERT_TRUE(up && down);
  EXPECT_GE(up->speed, 1.05);
  EXPECT_GT(up->bytes, 0);
  EXPECT_EQ(up->plan.micro.predicted.at_most, middle.micro.budget + up->bytes);
  EXPECT_LT(down->speed, 1.0);
  EXPECT_GT(down->bytes, 0);
  EXPECT_FALSE(search.next_up(search.best(stored)));
}

TEST(JointSearch, PlainNetworksKeepProductsOrAreStoredInParts) {
  JointSearch search(network_named("vit_cifar", {.plain = true}), {.batch = 32});
  const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
  const JointPlan nearly = search.best(stored - 1);
  EXPECT_TRUE(nearly.micro.fits);
  EXPECT_EQ(nearly.parts, 1);
  const JointPlan less = search.best(stored * 2 / 3);
  EXPECT_TRUE(less.micro.fits);
  EXPECT_GT(less.parts, 1);
  EXPECT_TRUE(less.micro.step.stores_all());
  EXPECT_LE(nearly.seconds, less.seconds);
}

}  // namespace
}  // namespace pareprop::plan
