#include "pareprop/train/allowed_ways.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "pareprop/plan/plan_words.h"

namespace pareprop::train {

std::vector<AllowedWay> allowed_ways(const TrainConfig& config, const Allowed& allowed) {
  const bool may_update = allowed.update_inside && config.update == "after";
  const bool may_shrink = allowed.lean_state && config.optimizer_state == "fp32" &&
                          config.optimizer != "adafactor" && config.precision != "fp64";
  std::vector<AllowedWay> ways;
  for (const bool inside : {false, true}) {
    for (const char* state : {"fp32", "bf16", "8bit"}) {
      const bool lean = state != std::string("fp32");
      if ((inside && !may_update) || (lean && !may_shrink) || (!inside && !lean)) continue;
      AllowedWay way{.flags = {}, .config = config};
      if (inside) {
        way.config.update = "inside";
        way.flags = "--update inside";
      }
      if (lean) {
        way.config.optimizer_state = state;
        way.flags += std::string(way.flags.empty() ? "" : " ") + "--optimizer-state " + state;
      }
      ways.push_back(std::move(way));
    }
  }
  return ways;
}

std::vector<plan::Departure> departures(const TrainConfig& config,
                                        const std::vector<AllowedWay>& ways,
                                        const ShapeOf& shape_of) {
  std::vector<plan::Departure> all;
  if (ways.empty()) return all;
  const plan::StepShape asked = shape_of(config);
  for (const AllowedWay& way : ways) {
    const plan::StepShape shape = shape_of(way.config);
    all.push_back({.flags = way.flags,
                   .optimizer_state = shape.optimizer_state,
                   .updates_inside = shape.updates_inside,
                   .goes_back_twice = shape.goes_back_twice,
                   .less_bytes = asked.other_bytes - shape.other_bytes});
  }
  return all;
}

namespace {

// What may be changed at once.
struct Change {
  bool plans;    // --mode auto instead of another mode
  bool divides;  // --shard gradients
  std::string flags = {};
};

// A configuration, and what lean state and updates inside make of it.
struct Kind {
  std::vector<AllowedWay> ways;
  plan::JointSearch search;

  Kind(const TrainConfig& config, const plan::MakeNetwork& make, const ShapeOf& shape_of)
      : ways(allowed_ways(config, {.lean_state = true, .update_inside = config.accumulate == 1})),
        search(make, shape_of(config), departures(config, ways, shape_of)) {}

  // Its plan with one of these ways, or without any; none: there is no such way.
  std::optional<plan::JointPlan> plan(const std::string& flags, Mode mode, std::int64_t budget) {
    std::optional<std::size_t> departure;
    if (!flags.empty()) {
      const auto way = std::find_if(ways.begin(), ways.end(),
                                    [&](const AllowedWay& one) { return one.flags == flags; });
      if (way == ways.end()) return std::nullopt;
      departure = static_cast<std::size_t>(way - ways.begin());
    }
    if (mode != Mode::automatic) return search.in_mode(mode, budget, departure);
    if (departure) return search.best_with(*departure, budget);
    plan::JointPlan whole = search.best_whole(budget);
    return whole.micro.fits ? whole : search.best_in_parts(budget).value_or(whole);
  }
};

// Those that change no bits first, then one flag before two, and the mode that is asked for before
// another.
std::vector<Change> changes(bool other_mode, bool may_divide) {
  constexpr const char* kInside = "--update inside";
  constexpr const char* kLean = "--optimizer-state 8bit";
  constexpr const char* kBoth = "--update inside --optimizer-state 8bit";
  std::vector<Change> all;
  if (other_mode) all.push_back({true, false});
  for (const bool plans : {false, true}) {
    if (plans && !other_mode) continue;
    all.push_back({plans, false, kInside});
    if (may_divide) all.insert(all.end(), {{plans, true}, {plans, true, kInside}});
    all.insert(all.end(), {{plans, false, kLean}, {plans, false, kBoth}});
    if (may_divide) all.insert(all.end(), {{plans, true, kLean}, {plans, true, kBoth}});
  }
  return all;
}

}  // namespace

std::string what_would_help(const TrainConfig& config, int processes, std::int64_t budget,
                            const plan::MakeNetwork& make, const ShapeOf& shape_of) {
  const TrainChoices choices = choices_of(config);
  const bool other_mode = choices.mode != Mode::automatic;
  const bool may_divide = processes > 1 && choices.shard != distributed::Shard::gradients;
  std::optional<Kind> kinds[2];  // gradients divided as they are; all of them
  for (const Change& change : changes(other_mode, may_divide)) {
    std::optional<Kind>& kind = kinds[change.divides];
    if (!kind) {
      TrainConfig changed = config;
      if (change.divides) changed.shard = "gradients";
      kind.emplace(changed, make, shape_of);
    }
    const Mode mode = change.plans ? Mode::automatic : choices.mode;
    const auto plan = kind->plan(change.flags, mode, budget);
    if (!plan || !plan->micro.fits) continue;
    std::string words;
    for (const std::string& flags :
         {std::string(change.plans ? "--mode auto" : ""),
          std::string(change.divides ? "--shard gradients" : ""), change.flags}) {
      if (!flags.empty()) words += (words.empty() ? "" : " ") + flags;
    }
    words += " would fit, in at most " + plan::exact_bytes(plan->micro.smallest_budget);
    if (change.flags.empty() || change.divides || mode != Mode::automatic) return words;
    const bool inside = change.flags.find("inside") != std::string::npos;
    const bool lean = change.flags.find("8bit") != std::string::npos;
    return words + " (--allow " + (lean ? "lean-state" : "") + (lean && inside ? "," : "") +
           (inside ? "update-inside" : "") + " lets the plan choose it)";
  }
  return "";
}

}  // namespace pareprop::train
