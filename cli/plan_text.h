#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "pareprop/plan/planner.h"

namespace pareprop::cli {

struct PlanTitle {
  std::string network;
  std::int64_t batch = 0;
  std::string precision;
  bool measured = false;  // times are
};

// For people: what each mode and the plan take, a picture of the policies, bytes by what they are
// for.
std::string plan_text(plan::Planner& planner, const plan::Plan& plan, const PlanTitle& title);

// A line a stack, a letter a block, from the input of the network on. Empty for a plain network.
std::string policies_picture(const plan::StepPlan& step);

// One line: what does not, and what would.
std::string does_not_fit(const plan::Plan& plan, const std::string& network, std::int64_t batch);

nlohmann::ordered_json plan_json(const plan::Plan& plan, bool measured);

}  // namespace pareprop::cli
