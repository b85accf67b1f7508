#include "pareprop/draw/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace pareprop::draw {
namespace {

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> out;
  for (const Tick& tick : axis.ticks) out.push_back(tick.label);
  return out;
}

using Labels = std::vector<std::string>;

TEST(Axis, LinearTicksAreRoundAndHoldTheRange) {
  const Axis axis = make_axis({0.3, 3.7}, {});
  EXPECT_EQ(labels(axis), (Labels{"0", "1", "2", "3", "4"}));
  EXPECT_DOUBLE_EQ(axis.place(0.0), 0.0);
  EXPECT_DOUBLE_EQ(axis.place(4.0), 1.0);
  EXPECT_DOUBLE_EQ(axis.place(1.0), 0.25);
}

TEST(Axis, LabelsHaveOneUnit) {
  EXPECT_EQ(labels(make_axis({0.0, 1e-3}, {})),
            (Labels{"0", "0.0002", "0.0004", "0.0006", "0.0008", "0.0010"}));
  EXPECT_EQ(labels(make_axis({0.0, 3e-4}, {.ticks = 3})), (Labels{"0", "1e-4", "2e-4", "3e-4"}));
  EXPECT_EQ(labels(make_axis({0.0, 60000.0}, {.ticks = 3})), (Labels{"0", "20k", "40k", "60k"}));
  EXPECT_EQ(labels(make_axis({-2e6, 2e6}, {.ticks = 4})), (Labels{"-2M", "-1M", "0", "1M", "2M"}));
  EXPECT_EQ(labels(make_axis({0.0, 2e20}, {.ticks = 2})), (Labels{"0", "1e20", "2e20"}));
}

TEST(Axis, FromZeroAndWhole) {
  EXPECT_EQ(make_axis({7.0, 9.0}, {.from_zero = true}).low, 0.0);
  EXPECT_EQ(make_axis({-9.0, -7.0}, {.from_zero = true}).high, 0.0);
  EXPECT_EQ(labels(make_axis({0.0, 2.0}, {.whole = true, .rounded = false, .ticks = 6})),
            (Labels{"0", "1", "2"}));
  EXPECT_EQ(labels(make_axis({1.0, 1.0}, {.whole = true, .rounded = false, .ticks = 6})),
            (Labels{"1"}));
}

TEST(Axis, NotRoundedEndsWithTheRange) {
  const Axis axis = make_axis({3.0, 17.0}, {.rounded = false});
  EXPECT_EQ(axis.low, 3.0);
  EXPECT_EQ(axis.high, 17.0);
  EXPECT_EQ(labels(axis), (Labels{"5", "10", "15"}));
}

TEST(Axis, LogarithmicTicks) {
  EXPECT_EQ(labels(make_axis({0.3, 4.0}, {.log = true})), (Labels{"0.2", "0.5", "1", "2", "5"}));
  const Axis decades = make_axis({3e-5, 40.0}, {.log = true, .ticks = 7});
  EXPECT_EQ(labels(decades), (Labels{"1e-5", "0.0001", "0.001", "0.01", "0.1", "1", "10", "100"}));
  EXPECT_NEAR(decades.place(1e-5), 0.0, 1e-12);
  EXPECT_NEAR(decades.place(100.0), 1.0, 1e-12);
  EXPECT_NEAR(decades.place(1e-4), 1.0 / 7, 1e-12);
}

// Whatever the values: inside the axis, which has few ticks in it that all read differently.
TEST(Axis, HoldsExtremes) {
  const std::vector<Range> ranges = {{},
                                     {0.0, 0.0},
                                     {5.0, 5.0},
                                     {-5.0, -5.0},
                                     {1e300, 1e300},
                                     {-1e300, 1e300},
                                     {1e-300, 1e-300},
                                     {0.0, 5e-324},
                                     {1e9, 1e9 + 1},
                                     {1.0, 1.0 + 1e-8},
                                     {1e16, 1e16 + 2.0},
                                     {-1e-7, 1e7}};
  for (const Range& range : ranges) {
    for (const bool rounded : {true, false}) {
      for (const bool zero : {true, false}) {
        SCOPED_TRACE(std::to_string(range.lowest) + " to " + std::to_string(range.highest));
        const Axis axis = make_axis(range, {.from_zero = zero, .rounded = rounded});
        EXPECT_LT(axis.low, axis.high);
        EXPECT_GE(axis.ticks.size(), 2U);
        EXPECT_LE(axis.ticks.size(), 8U);
        std::set<std::string> different;
        for (const Tick& tick : axis.ticks) {
          EXPECT_TRUE(different.insert(tick.label).second) << tick.label;
          EXPECT_NEAR(axis.place(tick.value), 0.5, 0.5 + 1e-6);
          EXPECT_LE(tick.label.size(), 14U) << tick.label;
        }
        if (range.empty()) continue;
        EXPECT_NEAR(axis.place(range.lowest), 0.5, 0.5 + 1e-6);
        EXPECT_NEAR(axis.place(range.highest), 0.5, 0.5 + 1e-6);
      }
    }
  }
}

TEST(Axis, LogarithmicHoldsExtremes) {
  for (const Range& range : std::vector<Range>{
           {}, {1.0, 1.0}, {1e-300, 1e300}, {1e300, 1e300}, {1e-300, 1e-300}, {99.0, 101.0}}) {
    const Axis axis = make_axis(range, {.log = true});
    EXPECT_LT(axis.low, axis.high);
    EXPECT_GE(axis.ticks.size(), 2U);
    EXPECT_LE(axis.ticks.size(), 8U);
    if (range.empty()) continue;
    EXPECT_NEAR(axis.place(range.lowest), 0.5, 0.5 + 1e-9);
    EXPECT_NEAR(axis.place(range.highest), 0.5, 0.5 + 1e-9);
  }
}

TEST(Axis, WhatCanBeShown) {
  EXPECT_TRUE(can_show(0.0, false));
  EXPECT_FALSE(can_show(0.0, true));
  EXPECT_FALSE(can_show(-1.0, true));
  EXPECT_FALSE(can_show(std::numeric_limits<double>::quiet_NaN(), false));
  EXPECT_FALSE(can_show(-std::numeric_limits<double>::infinity(), false));
  EXPECT_FALSE(can_show(std::numeric_limits<double>::max(), false));
}

TEST(Axis, TickStepsAreOneTwoOrFive) {
  EXPECT_DOUBLE_EQ(tick_step(10.0, 10), 1.0);
  EXPECT_DOUBLE_EQ(tick_step(11.0, 10), 2.0);
  EXPECT_DOUBLE_EQ(tick_step(21.0, 10), 5.0);
  EXPECT_DOUBLE_EQ(tick_step(51.0, 10), 10.0);
  EXPECT_DOUBLE_EQ(tick_step(0.03, 10), 0.005);
  for (double length = 1e-6; length < 1e9; length *= 1.37) {
    for (int ticks = 1; ticks < 15; ++ticks) {
      const double step = tick_step(length, ticks);
      EXPECT_LE(length / step, ticks * (1 + 1e-6));
      EXPECT_GT(length / step, ticks / 2.6);
    }
  }
  EXPECT_EQ(tick_decimals(0.005), 3);
  EXPECT_EQ(tick_decimals(0.1), 1);
  EXPECT_EQ(tick_decimals(1.0), 0);
  EXPECT_EQ(tick_decimals(500.0), 0);
}

}  // namespace
}  // namespace pareprop::draw
