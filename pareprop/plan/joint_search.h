#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/plan/planner.h"
#include "pareprop/plan/step_times.h"

namespace pareprop::plan {

// Into how many equal parts a batch may be cut: its divisors, in their order.
std::vector<std::int64_t> part_counts(std::int64_t batch);

// The shape of a micro-step, when a step's batch is cut into so many equal parts: gradients of
// other parts are there, and the whole batch waits.
StepShape part_of(StepShape whole, std::int64_t parts);

// The fastest of several options; of equally fast ones the first. No plan of option i takes less
// than least[i]; solve(i) tells what its fastest plan takes, none where nothing fits. It is asked
// in the order of `least`, and not where that cannot be faster.
std::optional<std::size_t> fastest_option(
    const std::vector<Seconds>& least,
    const std::function<std::optional<Seconds>(std::size_t)>& solve);

// A way to train that changes more than the rounding of sums: who trains has to allow it.
struct Departure {
  std::string flags;  // that ask for it: "--optimizer-state 8bit"
  MakeOptimizer optimizer_state = {};
  bool updates_inside = false;
  bool goes_back_twice = false;
  std::int64_t less_bytes = 0;  // of StepShape::other_bytes, by `updates_inside`
};

// How a step over a whole batch is computed.
struct JointPlan {
  Plan micro;              // the plan of each part; its bytes and whether they fit are the step's
  std::int64_t parts = 1;  // equal ones, one after another
  std::optional<std::size_t> departure = std::nullopt;  // of those allowed; none: as was asked
  Seconds seconds = {};                                 // of the whole batch
};

// Finds the fastest way to compute a step over a batch in a number of bytes: in how many parts, by
// which plan, and, where it is allowed, with which state and update of the optimizer.
// Note [Parts of a batch]
// A part that stores everything recomputes nothing, and the whole batch that is recomputed runs in
// one piece: which is faster is a matter of times. Where they are measured, each size has its own.
// Otherwise all sizes are taken to compute as fast, and each part beyond the first costs what it
// takes to read all weights and to add up their gradients once more. So of plans that store all,
// that with the largest parts is the fastest, and more than the smallest such number of parts is
// taken only where it was seen to pay.
class JointSearch {
 public:
  JointSearch(MakeNetwork make, const StepShape& whole, std::vector<Departure> allowed = {});

  const StepShape& shape() const { return whole_; }
  const std::vector<Departure>& allowed() const { return allowed_; }
  bool without_stacks() { return planner().without_stacks(); }
  bool measured() const { return !times_.empty(); }
  // Of the whole batch, or of one of its parts.
  Planner& planner(std::int64_t parts = 1);

  // Only this number of parts, from now on. REQUIRES: it divides the batch.
  void only(std::int64_t parts);

  // Sizes that were measured; others are taken to be as fast for each sample as the nearest, but
  // for what each step costs whatever its size.
  void use(SizeTimes times);
  void use(MacsPerSecond rate);
  // Which sizes are worth measuring in so many bytes, the largest first: none near to another or
  // much smaller than the largest that can be stored, nor any that takes long where a smaller one
  // speaks for it.
  std::vector<StepSize> sizes_to_measure(std::int64_t budget);

  // The whole network in one mode, in as few parts as there may be.
  JointPlan in_mode(Mode mode, std::int64_t budget,
                    std::optional<std::size_t> departure = std::nullopt);

  // The fastest way; if none fits, the leanest. Nothing is taken to be faster than to store the
  // whole batch: where that fits, no times are needed.
  JointPlan best(std::int64_t budget);
  // The fastest within some of the ways there are.
  JointPlan best_whole(std::int64_t budget);
  std::optional<JointPlan> best_in_parts(std::int64_t budget);
  JointPlan best_with(std::size_t departure, std::int64_t budget);

  // What more or fewer bytes would bring: the next plan that is at least a twentieth faster or
  // slower, or else that which stores the whole batch.
  struct Price {
    std::int64_t bytes = 0;  // that it takes more, or less
    double speed = 1.0;      // of it, beside the plan
    JointPlan plan = {};
  };
  std::optional<Price> next_up(const JointPlan& plan);
  std::optional<Price> next_down(const JointPlan& plan);

  // Fills in what is told of a plan besides, as Planner::plan() does: the smallest budget and the
  // largest batch are those of all that is allowed, or of the one mode that is.
  void add_figures(JointPlan& plan, Mode mode = Mode::automatic);

  // What a step of this plan takes in parts of this number.
  Seconds seconds(const StepPlan& step, std::int64_t parts = 1);

 private:
  struct Option {
    std::optional<std::size_t> departure;
    std::int64_t parts = 1;
    auto operator<=>(const Option&) const = default;
  };
  // How the optimizer steps: other bytes and times.
  struct Kind {
    bool inside = false, twice = false;
    auto operator<=>(const Kind&) const = default;
  };

  Kind kind_of(const Option& option) const;
  Planner& planner_of(const Option& option);
  std::vector<Option> options() const;
  bool may_fit(const Option& option, std::int64_t budget);
  JointPlan best_of(const std::vector<Option>& options, std::int64_t budget);
  const JointPlan& leanest_of(const std::vector<Option>& options, std::int64_t budget);
  const JointPlan& planned(const Option& option, std::int64_t budget);
  std::int64_t state_bytes(const MakeOptimizer& make);
  std::int64_t saved_bytes(const Option& option);
  Seconds adding();
  Seconds least(const Option& option);
  Seconds seconds_of(const Option& option, const StepPlan& step);
  StepTimes times_of(const StepSize& size);
  StepSize size_of(std::int64_t parts) const;
  void tell(Planner& planner, std::int64_t parts);

  const MakeNetwork make_;
  const StepShape whole_;
  const std::vector<Departure> allowed_;
  std::vector<std::int64_t> counts_;
  std::map<std::pair<Kind, std::int64_t>, std::unique_ptr<Planner>> planners_;
  std::map<std::size_t, std::int64_t> saved_;
  std::map<std::pair<Option, std::int64_t>, JointPlan> planned_;  // by option and budget
  SizeTimes times_;
  MacsPerSecond rate_{1e9};
};

}  // namespace pareprop::plan
