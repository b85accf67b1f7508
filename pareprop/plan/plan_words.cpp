#include "pareprop/plan/plan_words.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "pareprop/text/units.h"

namespace pareprop::plan {

std::string exact_bytes(std::int64_t bytes) {
  return text::bytes_text(static_cast<double>(bytes)) + " (" + std::to_string(bytes) + " bytes)";
}

std::string policy_letters(const StepPlan& step) {
  std::string letters;
  for (const StackPlan& stack : step.stacks) {
    if (!letters.empty()) letters += ' ';
    for (const Policy policy : stack.policies) {
      letters += static_cast<char>(std::toupper(static_cast<unsigned char>(name(policy).front())));
    }
  }
  return letters;
}

std::string parts_text(const Prediction& predicted) {
  using memory::Tag;
  struct Part {
    const char* name;
    std::int64_t bytes;
  };
  std::array<Part, 4> parts{Part{"weights", predicted.peak_of(Tag::parameters)},
                            {"gradients", predicted.peak_of(Tag::gradients)},
                            {"optimizer", predicted.peak_of(Tag::optimizer)},
                            {"activations", 0}};
  std::int64_t rest = predicted.at_most;
  for (const Part& part : parts) rest -= part.bytes;
  parts.back().bytes = std::max<std::int64_t>(0, rest);
  std::string words;
  for (const Part& part : parts) {
    words += std::string(words.empty() ? ": " : ", ") + part.name + " " + exact_bytes(part.bytes);
  }
  const auto largest = std::max_element(
      parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.bytes < b.bytes; });
  return exact_bytes(predicted.at_most) + words + ", mostly " + largest->name;
}

std::string does_not_fit(const Plan& plan, const std::string& network, std::int64_t batch,
                         const std::string& help) {
  std::string line = network + " with batch " + std::to_string(batch) + " does not fit in " +
                     exact_bytes(plan.budget) + ": the smallest budget for this batch is " +
                     exact_bytes(plan.smallest_budget);
  if (plan.largest_batch > 0) {
    line += ", the largest batch for this budget is " + std::to_string(plan.largest_batch);
  } else {
    line += ", and not even one sample fits";
    if (help.empty()) line += ": use a smaller network or more memory";
  }
  line += "; a step takes " + parts_text(plan.predicted);
  return help.empty() ? line : line + "; " + help;
}

}  // namespace pareprop::plan
