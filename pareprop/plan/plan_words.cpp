#include "pareprop/plan/plan_words.h"

#include <cctype>

#include "pareprop/graph/units.h"

namespace pareprop::plan {

std::string exact_bytes(std::int64_t bytes) {
  return text::bytes_text(static_cast<double>(bytes)) + " (" + std::to_string(bytes) + " bytes)";
}

std::string policy_letters(const StepPlan& step) {
  std::string letters;
  for (const auto& stack : step.policies) {
    if (!letters.empty()) letters += ' ';
    for (const Policy policy : stack) {
      letters += static_cast<char>(std::toupper(static_cast<unsigned char>(name(policy).front())));
    }
  }
  return letters;
}

std::string does_not_fit(const Plan& plan, const std::string& network, std::int64_t batch) {
  std::string line = network + " with batch " + std::to_string(batch) + " does not fit in " +
                     exact_bytes(plan.budget) + ": the smallest budget that would do is " +
                     exact_bytes(plan.smallest_budget);
  if (plan.largest_batch > 0) {
    line += ", the largest batch " + std::to_string(plan.largest_batch);
  } else {
    line += ", and not even one sample fits: take a smaller network or a larger budget";
  }
  if (plan.micro_batch > 0) {
    line += "; --batch " + std::to_string(plan.micro_batch) + " --accumulate " +
            std::to_string(plan.accumulate) + " computes the same step in parts";
  }
  return line;
}

}  // namespace pareprop::plan
