#include "cli/plan_text.h"

#include <algorithm>

#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/text/fixed.h"
#include "pareprop/text/units.h"

namespace pareprop::cli {

using plan::exact_bytes;
using plan::policy_letters;

namespace {

std::string bytes(std::int64_t count) { return bytes_text(static_cast<double>(count)); }

// Of stored training; 0: not known.
double speed(const PlanReport& report, plan::Seconds seconds) {
  return seconds > plan::Seconds{} ? report.stored_seconds / seconds : 0.0;
}

bool has_seconds(const PlanReport& report, plan::Seconds seconds) {
  return seconds > plan::Seconds{} && report.title.absent.empty();
}

// Where the times are from, or why there are none.
std::string times_note(const PlanReport& report) {
  const PlanTitle& title = report.title;
  if (!title.absent.empty()) {
    return "none: this machine has no " + title.absent +
           "; speeds are shares of multiply-accumulates";
  }
  return title.measured ? "measured" : "estimated from multiply-accumulates";
}

PlanReport::Row planned(const PlanReport& report) {
  return {.name = report.plan.fits ? "the plan" : "leanest plan",
          .predicted = report.plan.predicted,
          .seconds = report.seconds,
          .fits = report.plan.fits,
          .parts = report.parts};
}

std::string parts_name(std::int64_t parts) {
  return parts == 1 ? "whole batch" : "in " + std::to_string(parts) + " parts";
}

PlanReport::Row kind_row(std::string name, const plan::JointPlan& plan, std::string flags = {}) {
  return {.name = std::move(name),
          .predicted = plan.micro.predicted,
          .seconds = plan.seconds,
          .fits = plan.micro.fits,
          .parts = plan.parts,
          .flags = std::move(flags)};
}

// "--update inside --optimizer-state 8bit" as it fits into a table: "inside, 8bit".
std::string short_name(const std::string& flags) {
  std::string out;
  for (const char* word : {"inside", "bf16", "8bit"}) {
    if (flags.find(word) != std::string::npos) out += (out.empty() ? "" : ", ") + std::string(word);
  }
  return out;
}

// "2.1 GiB more: 1.20 times as fast, in 4 parts".
std::string price_text(const PlanReport::Price& price, const char* direction) {
  return "With " + bytes(price.bytes) + " " + direction + ": " + text::fixed(price.speed, 2) +
         " times as fast" +
         (price.parts > 1 ? ", in " + std::to_string(price.parts) + " parts" : "") + ".\n";
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
    table.add_row({row.name, bytes(row.predicted.total_peak), bytes(row.predicted.activation_peak),
                   yes_no(row.fits),
                   has_seconds(report, row.seconds) ? text::duration_text(row.seconds.count) : "-",
                   timed ? percent_text(speed(report, row.seconds)) : "-"});
  };
  for (const PlanReport::Row& row : report.modes) add(row);
  for (const PlanReport::Row& row : report.kinds) add(row);
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

PlanReport report_of(plan::JointSearch& search, const plan::JointPlan& plan, PlanTitle title) {
  PlanReport report{.title = std::move(title),
                    .plan = plan.micro,
                    .parts = plan.parts,
                    .flags = plan.departure ? search.allowed()[*plan.departure].flags : "",
                    .modes = {},
                    .kinds = {}};
  report.seconds = plan.seconds;
  const std::int64_t budget = plan.micro.budget;
  for (const Mode mode : search.planner().network().modes()) {
    const plan::JointPlan one = search.in_mode(mode, budget);
    report.modes.push_back(kind_row(std::string(name(mode)), one));
  }
  report.stored_seconds = report.modes.front().seconds;
  const auto add = [&](const plan::JointPlan& one, const std::string& name,
                       const std::string& flags = {}) {
    report.kinds.push_back(kind_row(name, one, flags));
  };
  add(search.best_whole(budget), parts_name(1));
  if (const auto parts = search.best_in_parts(budget)) {
    add(*parts, parts_name(parts->parts));
  }
  for (std::size_t i = 0; i < search.allowed().size(); ++i) {
    const std::string& flags = search.allowed()[i].flags;
    add(search.best_with(i, budget), short_name(flags), flags);
  }
  const auto price = [](const std::optional<plan::JointSearch::Price>& found) {
    if (!found) return std::optional<PlanReport::Price>();
    return std::optional(PlanReport::Price{found->bytes, found->speed, found->plan.parts});
  };
  report.up = price(search.next_up(plan));
  report.down = price(search.next_down(plan));
  return report;
}

std::string plan_text(const PlanReport& report) {
  const PlanTitle& title = report.title;
  const plan::Plan& plan = report.plan;
  std::string out = title.network + ", batch " + std::to_string(title.batch) + ", " +
                    title.precision + ", budget " + exact_bytes(plan.budget) + "\n\n" +
                    mode_table(report) + "\n";
  const std::string letters = letters_text(plan.step);
  if (report.parts > 1) {
    out += "The batch is computed in " + std::to_string(report.parts) + " parts of " +
           std::to_string(title.batch / report.parts) +
           (title.batch == report.parts ? " sample" : " samples") + ", one after another.\n";
  }
  if (!report.flags.empty()) out += "The plan takes " + report.flags + ".\n";
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
                      (plan.fits ? ", without cutting it into parts.\n" : ".\n");
  if (report.up) words += price_text(*report.up, "more");
  if (report.down) words += price_text(*report.down, "less");
  if (!title.absent.empty()) {
    words +=
        "This machine has no " + title.absent +
        ": speeds are shares of multiply-accumulates, and nobody has compared such a plan with "
        "a real device yet.\n";
  } else if (!title.measured) {
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
  const auto seconds_json = [&](plan::Seconds seconds) {
    return has_seconds(report, seconds) ? nlohmann::ordered_json(seconds.count)
                                        : nlohmann::ordered_json();
  };
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
                              {"step_seconds", seconds_json(report.seconds)},
                              {"times_note", times_note(report)},
                              {"measured", report.title.measured},
                              {"speed", speed(report, report.seconds)},
                              {"parts", report.parts},
                              {"flags", report.flags},
                              {"policies", policy_letters(plan.step)},
                              {"command", report.title.command},
                              {"command_note", report.title.command_note}};
  auto& modes = json["modes"] = nlohmann::ordered_json::array();
  const auto row_json = [&](const char* key, const PlanReport::Row& row) {
    return nlohmann::ordered_json{{key, row.name},
                                  {"peak_bytes", row.predicted.total_peak},
                                  {"at_most_bytes", row.predicted.at_most},
                                  {"activation_bytes", row.predicted.activation_peak},
                                  {"reserved_bytes", row.predicted.reserved_peak},
                                  {"fits", row.fits},
                                  {"step_seconds", seconds_json(row.seconds)},
                                  {"speed", speed(report, row.seconds)},
                                  {"parts", row.parts},
                                  {"flags", row.flags}};
  };
  for (const PlanReport::Row& row : report.modes) modes.push_back(row_json("mode", row));
  auto& kinds = json["kinds"] = nlohmann::ordered_json::array();
  for (const PlanReport::Row& row : report.kinds) kinds.push_back(row_json("kind", row));
  const auto price_json = [](const std::optional<PlanReport::Price>& price) {
    if (!price) return nlohmann::ordered_json();
    return nlohmann::ordered_json{
        {"bytes", price->bytes}, {"speed", price->speed}, {"parts", price->parts}};
  };
  json["more"] = price_json(report.up);
  json["less"] = price_json(report.down);
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
