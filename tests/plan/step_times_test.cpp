#include "pareprop/plan/step_times.h"

#include <gtest/gtest.h>

#include <functional>

namespace pareprop::plan {
namespace {

// A machine whose clock is a number: what takes a millisecond takes five while others want it.
struct ScriptedMachine {
  std::function<bool(double now)> is_busy;
  double now = 0.0;
  int pauses = 0;

  static constexpr double kAlone = 1e-3, kPause = 60e-3;

  double once() {
    const double seconds = is_busy(now) ? 5 * kAlone : kAlone;
    now += seconds;
    return seconds;
  }
  double fastest() {
    return fastest_of([this] { return once(); },
                      [this] {
                        now += kPause;
                        ++pauses;
                      });
  }
};

TEST(FastestOf, ABusyMomentDoesNotSpeakForTheMachine) {
  // From the beginning, in the middle, and nearly all of the time.
  for (const auto& [begin, end] : {std::pair(-1.0, 0.4), {0.05, 0.5}, {0.02, 9.0}}) {
    ScriptedMachine machine{[&](double now) { return now >= begin && now < end; }};
    EXPECT_DOUBLE_EQ(machine.fastest(), ScriptedMachine::kAlone) << begin << " to " << end;
  }
  ScriptedMachine by_turns{[turn = 0](double) mutable { return ++turn % 7 != 0; }};
  EXPECT_DOUBLE_EQ(by_turns.fastest(), ScriptedMachine::kAlone);
}

TEST(FastestOf, AMachineThatIsAlwaysBusyIsSlow) {
  ScriptedMachine machine{[](double) { return true; }};
  EXPECT_DOUBLE_EQ(machine.fastest(), 5 * ScriptedMachine::kAlone);
}

TEST(FastestOf, TriesForHalfASecondAndRestsBetween) {
  ScriptedMachine machine{[](double) { return false; }};
  machine.fastest();
  EXPECT_EQ(machine.pauses, Spells{}.count - 1);
  EXPECT_NEAR(machine.now, 0.54, 0.01);
  // One that takes longer than a spell is tried once in each.
  int tries = 0;
  EXPECT_EQ(fastest_of([&] { return 1.0 + ++tries; }, [] {}, {.count = 3, .seconds = 0.5}), 2.0);
  EXPECT_EQ(tries, 3);
}

}  // namespace
}  // namespace pareprop::plan
