#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/plan/joint_search.h"

namespace pareprop::cli {

struct PlanTitle {
  std::string network;
  std::int64_t batch = 0;
  std::string precision;
  bool measured = false;     // times are
  std::string absent = {};   // the device of the plan, where this machine has none: no times
  std::string command = {};  // that trains so; empty: none is named
  std::string command_note = {};
};

// All that is told about a plan: computed once, then written for people or for programs.
struct PlanReport {
  struct Row {
    std::string name;
    plan::Prediction predicted;
    plan::Seconds seconds = {};  // 0: not known
    bool fits = false;
    std::int64_t parts = 1;
    std::string flags = {};  // that it needs
  };
  // What another budget would bring.
  struct Price {
    std::int64_t bytes = 0;  // more, or less
    double speed = 1.0;      // beside the plan's
    std::int64_t parts = 1;
  };

  PlanTitle title;
  plan::Plan plan;         // of each part
  std::int64_t parts = 1;  // of the batch
  std::string flags = {};  // what was allowed and is taken
  plan::Seconds seconds = {};
  std::vector<Row> modes;  // the whole batch in one mode
  std::vector<Row> kinds;  // the fastest plan of each kind
  std::optional<Price> up = {}, down = {};
  plan::Seconds stored_seconds = {};
};
PlanReport report_of(plan::JointSearch& search, const plan::JointPlan& plan, PlanTitle title);

// What each mode and the plan take, a picture of the policies, bytes by what they are for.
std::string plan_text(const PlanReport& report);

// Seconds that are not known are null; "times_note" says why, or where they are from.
nlohmann::ordered_json plan_json(const PlanReport& report);

}  // namespace pareprop::cli
