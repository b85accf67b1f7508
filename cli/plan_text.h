#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pareprop/plan/planner.h"

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
  };

  PlanTitle title;
  plan::Plan plan;
  std::vector<Row> modes;  // the whole network in one mode
  plan::Seconds stored_seconds = {};
  bool plain = false;
};
PlanReport report_of(plan::Planner& planner, const plan::Plan& plan, PlanTitle title);

// What each mode and the plan take, a picture of the policies, bytes by what they are for.
std::string plan_text(const PlanReport& report);

nlohmann::ordered_json plan_json(const PlanReport& report);

}  // namespace pareprop::cli
