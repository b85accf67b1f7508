#include "pareprop/plan/joint_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
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

TEST(PartCounts, AreAllDivisors) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(part_counts(1), Counts({1}));
  EXPECT_EQ(part_counts(2), Counts({1, 2}));
  EXPECT_EQ(part_counts(7), Counts({1, 7}));
  EXPECT_EQ(part_counts(12), Counts({1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(part_counts(15), Counts({1, 3, 5, 15}));
  EXPECT_EQ(part_counts(36), Counts({1, 2, 3, 4, 6, 9, 12, 18, 36}));
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
    constexpr std::int64_t kBatch = 24;
    JointSearch search(network_named(name), {.batch = kBatch, .input_bytes = 12288});
    const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
    JointPlan leanest = search.best(0);
    search.add_figures(leanest);
    const std::int64_t least = leanest.micro.smallest_budget;
    ASSERT_LT(least, search.planner().plan_step(0).smallest_budget) << name;
    EXPECT_FALSE(search.best(least - 1).micro.fits) << name;
    Seconds last{1e30};
    bool cut = false;
    for (const int eighths : {0, 1, 2, 4, 8}) {
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
  EXPECT_EQ(none.departure, std::optional<std::size_t>(0)) << "the leanest";
}

// Some ways to compute a part, and what the planner of exactly such a step says of them.
struct WayToStep {
  std::unique_ptr<Planner> planner;
  std::int64_t parts = 1;
  bool twice = false;
  std::vector<StepPlan> steps = {};
  std::vector<std::int64_t> bytes = {};

  void add(StepPlan step) {
    bytes.push_back(planner->predict(step).at_most);
    steps.push_back(std::move(step));
  }
};

// The whole network in each mode, and in each policy that has no mode.
void add_uniform_steps(WayToStep& way) {
  const Network& network = way.planner->network();
  for (const Mode mode : network.modes()) way.add(way.planner->all(mode));
  if (network.plain()) return;
  StepPlan step = way.planner->recomputing(false);
  step.recompute_between = true;
  for (const Policy policy : {Policy::reverse, Policy::products, Policy::anchor}) {
    for (StackPlan& stack : step.stacks) stack.policies.assign(stack.policies.size(), policy);
    way.add(step);
  }
}

// One for each number of parts and departure.
std::vector<WayToStep> all_ways(const MakeNetwork& make, const StepShape& whole,
                                const std::vector<Departure>& departures) {
  std::vector<WayToStep> ways;
  for (std::size_t d = 0; d <= departures.size(); ++d) {
    StepShape shape = whole;
    if (d > 0) {
      const Departure& own = departures[d - 1];
      shape.optimizer_state = own.optimizer_state;
      shape.updates_inside = own.updates_inside;
      shape.goes_back_twice = own.goes_back_twice;
      shape.other_bytes -= own.less_bytes;
    }
    for (std::int64_t parts = 1; parts <= whole.batch; ++parts) {
      if (whole.batch % parts != 0 || (parts > 1 && shape.updates_inside)) continue;
      ways.push_back({.planner = std::make_unique<Planner>(make, part_of(shape, parts)),
                      .parts = parts,
                      .twice = shape.goes_back_twice});
      add_uniform_steps(ways.back());
    }
  }
  return ways;
}

TEST(JointSearch, NothingThatFitsIsFaster) {
  struct Tried {
    const char* model;
    models::Overrides overrides;
    std::int64_t batch;
  };
  const std::vector<Departure> departures = {
      {.flags = "lean", .optimizer_state = copies_of_weights(1)},
      {.flags = "inside", .optimizer_state = copies_of_weights(2), .updates_inside = true},
      {.flags = "both",
       .optimizer_state = {},
       .updates_inside = true,
       .goes_back_twice = true,
       .less_bytes = 10'000}};
  int in_odd_parts = 0, departed = 0, none = 0;
  for (const Tried& c : {Tried{"vit_cifar", {.depths = {3}, .width = 32}, 12},
                         Tried{"vit_cifar", {.depths = {2}, .width = 64}, 15},
                         Tried{"swin_cifar", {.depths = {1}, .width = 24}, 6},
                         Tried{"vit_cifar", {.depths = {2}, .width = 32, .plain = true}, 9}}) {
    const MakeNetwork make = network_named(c.model, c.overrides);
    const StepShape whole{.batch = c.batch, .other_bytes = 20'000, .input_bytes = 12288};
    JointSearch search(make, whole, departures);
    const std::vector<WayToStep> ways = all_ways(make, whole, departures);
    const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
    for (const double share : {0.1, 0.15, 0.2, 0.3, 0.5, 0.8}) {
      const std::int64_t budget = std::llround(share * static_cast<double>(stored));
      SCOPED_TRACE(std::string(c.model) + " " + std::to_string(c.batch) + " " +
                   std::to_string(share));
      const JointPlan best = search.best(budget);
      Seconds fastest{1e30};
      for (const WayToStep& way : ways) {
        const auto consider = [&](const StepPlan& step) {
          Seconds taken = search.seconds(step, way.parts);
          if (way.twice) {
            taken = 2.0 * taken - search.seconds(way.planner->all(Mode::stored), way.parts) / 3.0;
          }
          fastest = std::min(fastest, taken);
        };
        for (std::size_t i = 0; i < way.steps.size(); ++i) {
          if (way.bytes[i] <= budget) consider(way.steps[i]);
        }
        const Plan planned = way.planner->plan_step(budget);
        if (planned.fits) consider(planned.step);
      }
      ASSERT_EQ(best.micro.fits, fastest < Seconds{1e30});
      none += !best.micro.fits;
      if (!best.micro.fits) continue;
      EXPECT_LE(best.micro.predicted.at_most, budget);
      EXPECT_LE(best.seconds.count, fastest.count * (1.0 + 1e-6));
      in_odd_parts += best.parts % 2 == 1 && best.parts > 1;
      departed += best.departure.has_value();
    }
  }
  EXPECT_GT(in_odd_parts, 0);
  EXPECT_GT(departed, 0);
  EXPECT_GT(none, 0);
}

TEST(JointSearch, FiguresAreThoseOfWhatIsAllowed) {
  const Departure lean{.flags = "lean", .optimizer_state = {}, .updates_inside = true};
  const MakeNetwork make = network_named("vit_cifar");
  JointSearch asked(make, {.batch = 8}), search(make, {.batch = 8}, {lean});
  const auto least_of = [](JointSearch& one) {
    JointPlan plan = one.best(0);
    EXPECT_FALSE(plan.micro.fits);
    one.add_figures(plan);
    return plan.micro.smallest_budget;
  };
  const std::int64_t least = least_of(search), before = least_of(asked);
  ASSERT_LT(least, before);
  EXPECT_FALSE(search.best(least - 1).micro.fits);
  EXPECT_TRUE(search.best(least).micro.fits);
  JointPlan plan = search.best(before - 1);
  ASSERT_TRUE(plan.micro.fits);
  search.add_figures(plan);
  EXPECT_EQ(plan.micro.smallest_budget, least);
  EXPECT_GE(plan.micro.largest_batch, 8);
  const auto down = search.next_down(plan);
  ASSERT_TRUE(down);
  EXPECT_TRUE(down->plan.micro.fits);
  EXPECT_GT(down->bytes, 0);
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
