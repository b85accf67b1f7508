#include "cli/plan_text.h"

#include <algorithm>

#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/text/units.h"

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

// Of stored training; 0: not known.
double speed(const PlanReport& report, plan::Seconds seconds) {
  return seconds > plan::Seconds{} ? report.stored_seconds / seconds : 0.0;
}

PlanReport::Row planned(const PlanReport& report) {
  return {.name = report.plan.fits ? "the plan" : "leanest plan",
          .predicted = report.plan.predicted,
          .seconds = report.plan.seconds,
          .fits = report.plan.fits};
}

std::string mode_table(const PlanReport& report) {
  Table table({{"", Align::left},
               {"peak"},
               {"activations"},
               {"fits"},
               {report.title.measured ? "step" : "step, about"},
               {"speed"}});
  auto add = [&](const PlanReport::Row& row) {
    const bool timed = row.seconds > plan::Seconds{};
    table.add_row(
        {row.name, bytes(row.predicted.total_peak), bytes(row.predicted.activation_peak),
         yes_no(row.fits),
         timed && report.title.absent.empty() ? text::duration_text(row.seconds.count) : "-",
         timed ? percent_text(speed(report, row.seconds)) : "-"});
  };
  for (const PlanReport::Row& row : report.modes) add(row);
  add(planned(report));
  return table.text();
}

std::string tag_table(const plan::Prediction& usage) {
  Table table({{"used for", Align::left}, {"peak"}});
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) {
    table.add_row({std::string(name(static_cast<memory::Tag>(tag))), bytes(usage.peak[tag])});
  }
  table.add_row({"all together", bytes(usage.total_peak)});
  if (usage.reserved_peak > 0) {
    table.add_row({"that the allocator reserves", bytes(usage.reserved_peak)});
  }
  return table.text();
}

// "SSSC RR", in lines that fit.
std::string letters_text(const StepPlan& step) {
  constexpr std::size_t kIndent = 2, kLine = kPageWidth - kIndent;
  std::string out;
  for (std::string rest = policy_letters(step); !rest.empty();) {
    std::size_t count = std::min(rest.size(), kLine);
    if (count < rest.size() && rest.rfind(' ', count) != std::string::npos) {
      count = rest.rfind(' ', count) + 1;
    }
    out += std::string(kIndent, ' ') + rest.substr(0, count) + "\n";
    rest.erase(0, count);
  }
  return out;
}

}  // namespace

PlanReport report_of(plan::Planner& planner, const plan::Plan& plan, PlanTitle title) {
  PlanReport report{.title = std::move(title), .plan = plan, .modes = {}, .plain = planner.plain()};
  report.stored_seconds = planner.seconds(planner.all(Mode::stored));
  for (const Mode mode : modes_of(planner)) {
    const StepPlan step = planner.all(mode);
    const plan::Prediction predicted = planner.predict(step);
    report.modes.push_back({.name = std::string(name(mode)),
                            .predicted = predicted,
                            .seconds = planner.seconds(step),
                            .fits = predicted.at_most <= plan.budget});
  }
  return report;
}

std::string plan_text(const PlanReport& report) {
  const auto& [title, plan, modes, stored_seconds, plain] = report;
  std::string out = title.network + ", batch " + std::to_string(title.batch) + ", " +
                    title.precision + ", budget " + exact_bytes(plan.budget) + "\n\n" +
                    mode_table(report) + "\n";
  const std::string letters = letters_text(plan.step);
  if (!letters.empty()) {
    out += plan.fits ? "Policies of the plan" : "Policies of the leanest plan";
    out +=
        ", one letter per block from input to output\n(S store, P products, C checkpoint, A "
        "anchor, R reverse; ";
    out += plan.step.overlaps() ? "two lanes):\n" : "one lane):\n";
    out += letters;
    if (plan.step.recompute_between) out += "  layers between stacks are recomputed\n";
    out += "\n";
  }
  out += tag_table(plan.predicted) + "\n";
  std::string words = "Smallest budget for this batch: " + exact_bytes(plan.smallest_budget) +
                      ".\nLargest batch for this budget: " + std::to_string(plan.largest_batch) +
                      ".\n";
  if (plan.stored_micro_batch > 0) {
    words += "Alternative: --batch " + std::to_string(plan.stored_micro_batch) + " --accumulate " +
             std::to_string(title.batch / plan.stored_micro_batch) +
             " fits without recomputation; faster if small batches run efficiently.\n";
  }
  if (!title.absent.empty()) {
    words +=
        "This machine has no " + title.absent +
        ": speeds are shares of multiply-accumulates, and nobody has compared such a plan with "
        "a real device yet.\n";
  } else if (!title.measured && !plain) {
    words +=
        "Times are estimates from multiply-accumulates; 'pareprop plan --measure' times real "
        "steps.\n";
  }
  if (!title.command_note.empty()) words += title.command_note + "\n";
  out += wrapped(words);
  if (!title.command.empty()) {
    out += "\nTo train with this plan, on your own --data:\n  " + title.command + "\n";
  }
  return out;
}

nlohmann::ordered_json plan_json(const PlanReport& report) {
  const plan::Plan& plan = report.plan;
  nlohmann::ordered_json json{{"network", report.title.network},
                              {"batch", report.title.batch},
                              {"precision", report.title.precision},
                              {"fits", plan.fits},
                              {"budget_bytes", plan.budget},
                              {"predicted_peak_bytes", plan.predicted.total_peak},
                              {"predicted_at_most_bytes", plan.predicted.at_most},
                              {"predicted_activation_bytes", plan.predicted.activation_peak},
                              {"predicted_reserved_bytes", plan.predicted.reserved_peak},
                              {"smallest_budget_bytes", plan.smallest_budget},
                              {"largest_batch", plan.largest_batch},
                              {"micro_batch", plan.micro_batch},
                              {"accumulate", plan.accumulate},
                              {"stored_micro_batch", plan.stored_micro_batch},
                              {"mode", name(nearest_mode(plan.step))},
                              {"overlap", plan.step.overlaps()},
                              {"recompute_between", plan.step.recompute_between},
                              {"step_seconds", plan.seconds.count},
                              {"measured", report.title.measured},
                              {"speed", speed(report, plan.seconds)},
                              {"policies", policy_letters(plan.step)},
                              {"command", report.title.command},
                              {"command_note", report.title.command_note}};
  auto& modes = json["modes"] = nlohmann::ordered_json::array();
  for (const PlanReport::Row& row : report.modes) {
    modes.push_back({{"mode", row.name},
                     {"peak_bytes", row.predicted.total_peak},
                     {"at_most_bytes", row.predicted.at_most},
                     {"activation_bytes", row.predicted.activation_peak},
                     {"fits", row.fits},
                     {"step_seconds", row.seconds.count},
                     {"speed", speed(report, row.seconds)}});
  }
  auto& tags = json["predicted_bytes"] = nlohmann::ordered_json::object();
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) {
    tags[std::string(name(static_cast<memory::Tag>(tag)))] = plan.predicted.peak[tag];
  }
  auto& blocks = json["blocks"] = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < plan.step.stacks.size(); ++s) {
    const std::vector<Policy>& policies = plan.step.stacks[s].policies;
    for (std::size_t i = 0; i < policies.size(); ++i) {
      blocks.push_back({{"stack", s}, {"block", i}, {"policy", name(policies[i])}});
    }
  }
  return json;
}

}  // namespace pareprop::cli
