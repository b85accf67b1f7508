#include "cli/plan_text.h"

#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/graph/text.h"
#include "pareprop/plan/plan_words.h"

namespace pareprop::cli {

using plan::exact_bytes;
using plan::policy_letters;

namespace {

std::string bytes(std::int64_t count) { return bytes_text(static_cast<double>(count)); }

std::vector<Mode> modes_of(const plan::Planner& planner) {
  std::vector<Mode> modes{Mode::stored, Mode::checkpoint};
  if (!planner.plain()) modes.insert(modes.end(), {Mode::reprop, Mode::pareprop});
  return modes;
}

std::string mode_table(plan::Planner& planner, const plan::Plan& plan, bool measured) {
  Table table({{"", Align::left},
               {"peak"},
               {"activations"},
               {"fits"},
               {measured ? "step" : "step, about"},
               {"speed"}});
  const double stored = planner.seconds(planner.all(Mode::stored));
  auto add = [&](const std::string& title, const plan::Prediction& usage, double seconds) {
    const bool timed = seconds > 0.0;
    table.add_row({title, bytes(usage.total_peak), bytes(usage.activation_peak),
                   yes_no(usage.at_most <= plan.budget), timed ? text::duration_text(seconds) : "-",
                   timed ? percent_text(stored / seconds) : "-"});
  };
  for (const Mode mode : modes_of(planner)) {
    const plan::StepPlan step = planner.all(mode);
    add(std::string(name(mode)), planner.predict(step), planner.seconds(step));
  }
  add(plan.fits ? "the plan" : "the leanest", plan.predicted, plan.seconds);
  return table.text();
}

std::string tag_table(const memory::Usage& usage) {
  Table table({{"for", Align::left}, {"at its highest"}});
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) {
    table.add_row({std::string(name(static_cast<memory::Tag>(tag))), bytes(usage.peak[tag])});
  }
  table.add_row({"all together", bytes(usage.total_peak)});
  return table.text();
}

}  // namespace

std::string plan_text(plan::Planner& planner, const plan::Plan& plan, const PlanTitle& title) {
  std::string out = title.network + ", batch " + std::to_string(title.batch) + ", " +
                    title.precision + ", budget " + exact_bytes(plan.budget) + "\n\n" +
                    mode_table(planner, plan, title.measured) + "\n";
  const std::string letters = policy_letters(plan.step);
  if (!letters.empty()) {
    out += plan.fits ? "Policies of the plan" : "Policies of the leanest";
    out +=
        ", a letter a block, stacks from the input on (S store, P products, C checkpoint, A "
        "anchor, R reverse";
    out +=
        plan.step.mode == Mode::pareprop ? "; recovery beside the gradient):\n" : "; one lane):\n";
    out += "  " + letters + "\n";
    if (plan.step.recompute_between) out += "  what lies between stacks is recomputed\n";
    out += "\n";
  }
  out += tag_table(plan.predicted) + "\n";
  out += "Smallest budget for this batch: " + exact_bytes(plan.smallest_budget) +
         ". Largest batch for this budget: " + std::to_string(plan.largest_batch) + ".\n";
  if (plan.stored_micro_batch > 0) {
    out +=
        "In parts nothing need be recomputed: --batch " + std::to_string(plan.stored_micro_batch) +
        " --accumulate " + std::to_string(title.batch / plan.stored_micro_batch) +
        " stores everything within this budget, and is faster where small batches lose little.\n";
  }
  if (!title.measured && !planner.plain()) {
    out += "Times are guessed from multiply-accumulates; --measure times steps on this machine.\n";
  }
  return out;
}

nlohmann::ordered_json plan_json(const plan::Plan& plan, bool measured) {
  nlohmann::ordered_json json{{"fits", plan.fits},
                              {"budget_bytes", plan.budget},
                              {"predicted_peak_bytes", plan.predicted.total_peak},
                              {"predicted_at_most_bytes", plan.predicted.at_most},
                              {"predicted_activation_bytes", plan.predicted.activation_peak},
                              {"smallest_budget_bytes", plan.smallest_budget},
                              {"largest_batch", plan.largest_batch},
                              {"micro_batch", plan.micro_batch},
                              {"accumulate", plan.accumulate},
                              {"stored_micro_batch", plan.stored_micro_batch},
                              {"mode", name(plan.step.mode)},
                              {"overlap", plan.step.mode == Mode::pareprop},
                              {"recompute_between", plan.step.recompute_between},
                              {"step_seconds", plan.seconds},
                              {"measured", measured}};
  auto& tags = json["predicted_bytes"] = nlohmann::ordered_json::object();
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) {
    tags[std::string(name(static_cast<memory::Tag>(tag)))] = plan.predicted.peak[tag];
  }
  auto& blocks = json["blocks"] = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < plan.step.policies.size(); ++s) {
    for (std::size_t i = 0; i < plan.step.policies[s].size(); ++i) {
      blocks.push_back({{"stack", s}, {"block", i}, {"policy", name(plan.step.policies[s][i])}});
    }
  }
  return json;
}

}  // namespace pareprop::cli
