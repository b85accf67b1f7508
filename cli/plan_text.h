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

nlohmann::ordered_json plan_json(const plan::Plan& plan, bool measured);

}  // namespace pareprop::cli
