#include "pareprop/train/run_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "pareprop/draw/page.h"
#include "pareprop/reversible/stack_call.h"
#include "pareprop/text/fixed.h"
#include "pareprop/text/units.h"
#include "pareprop/train/run_page_style.h"
#include "pareprop/train/run_plots.h"

namespace pareprop::train {
namespace {

constexpr double kWaitedMuch = 0.05;

std::string count_of(std::size_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string outcome(const TrainConfig& config, const TrainResult& result) {
  const std::string steps =
      std::to_string(result.step) + " of " + std::to_string(result.all_steps) + " steps";
  switch (result.end) {
    case TrainEnd::running:
      return "Training: " + steps + " were done when this page was written.";
    case TrainEnd::finished:
    case TrainEnd::nothing_to_do:
      return "Finished: " + steps + ".";
    case TrainEnd::stopped_early:
      return "Stopped early after " + steps + ": the last " + std::to_string(config.early_stop) +
             " evaluations had no lower validation loss.";
    case TrainEnd::stopped_by_user:
      return "Stopped by the user after " + steps + ".";
    case TrainEnd::out_of_time:
      return "Stopped after " + steps + ": the time limit was reached.";
  }
  return "";
}

double median_speed(const std::vector<StepRecord>& steps) {
  std::vector<double> speeds;
  for (const StepRecord& record : steps) {
    if (std::isfinite(record.samples_per_s)) speeds.push_back(record.samples_per_s);
  }
  if (speeds.empty()) return 0.0;
  std::sort(speeds.begin(), speeds.end());
  return (speeds[(speeds.size() - 1) / 2] + speeds[speeds.size() / 2]) / 2.0;
}

std::string key_figures(const TrainResult& result) {
  constexpr std::string_view kNone = "\u2013";
  const bool here = result.evaluation.rows > 0;
  const bool evaluated = here || !result.evaluations.empty();
  // Before the run was resumed, if none came after that.
  const EvaluationRecord evaluation =
      here || !evaluated
          ? EvaluationRecord{.loss = result.evaluation.loss, .accuracy = result.evaluation.accuracy}
          : result.evaluations.back();
  const memory::Usage& memory = result.memory;
  std::string out = "<dl class=\"figures\">\n";
  out += draw::key_figure("Validation accuracy",
                          evaluated ? text::percent_text(evaluation.accuracy) : std::string(kNone),
                          here        ? "of " + std::to_string(result.evaluation.rows)
                          : evaluated ? "at step " + std::to_string(evaluation.step)
                                      : "not evaluated");
  out += draw::key_figure("Validation loss",
                          evaluated ? text::fixed(evaluation.loss, 4) : std::string(kNone),
                          "last training loss " + text::fixed(result.last_loss, 4));
  if (result.best) {
    out += draw::key_figure("Best validation loss",
                            text::fixed(result.best->evaluation_loss.value_or(0.0), 4),
                            "step " + std::to_string(result.best->step));
  }
  const bool resumed = result.seconds_in_all > result.seconds;
  out += draw::key_figure(
      "Time", text::duration_text(std::max(result.seconds, result.seconds_in_all)),
      resumed ? text::duration_text(result.seconds) + " since the run was resumed" : "of training");
  out += draw::key_figure(
      "Samples a second",
      result.steps.empty() ? std::string(kNone) : text::fixed(median_speed(result.steps), 1),
      "median");
  out += draw::key_figure(
      "Peak memory", text::bytes_text(static_cast<double>(memory.total_peak)),
      "activations " + text::bytes_text(static_cast<double>(memory.activation_peak)));
  out += draw::key_figure("Waited for data", text::percent_text(result.waited), "of the time");
  return out + "</dl>\n";
}

std::string data_note(const TrainConfig& config, const TrainResult& result) {
  if (!(result.waited > kWaitedMuch)) return "";
  return "<p class=\"note\">Training waited for data " +
         draw::escaped(text::percent_text(result.waited)) +
         " of the time: preparing data was the bottleneck. The run had " +
         draw::escaped(
             count_of(static_cast<std::size_t>(std::max(0, config.workers)), "worker", "workers")) +
         "; more (--workers) make it faster if cores are free.</p>\n";
}

std::string_view meaning(Policy policy) {
  switch (policy) {
    case Policy::store:
      return "stores everything that the gradient needs";
    case Policy::products:
      return "stores what matrix products read and computed; GELU and the probabilities of "
             "attention are recomputed";
    case Policy::checkpoint:
      return "stores both inputs of the block and recomputes the block";
    case Policy::anchor:
      return "stores one input of the block and recomputes the block";
    case Policy::reverse:
      return "stores nothing: the inputs of the block are recovered from its outputs";
  }
  return "";
}

std::string chip(Policy policy, const std::string& words, const std::string& tip) {
  return "<span class=\"chip " + std::string(name(policy)) + "\" title=\"" + draw::escaped(tip) +
         "\">" + draw::escaped(words) + "</span>";
}

// A letter a block, in the order of the forward pass.
std::string chips(const std::vector<Policy>& policies) {
  std::string out = "<div class=\"chips\">";
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string policy(name(policies[i]));
    out += chip(policies[i], std::string(1, static_cast<char>(policy[0] - 'a' + 'A')),
                "block " + std::to_string(i) + ": " + policy);
  }
  return out + "</div>";
}

std::string summary(const std::vector<Policy>& policies) {
  std::string out;
  for (Policy policy : kPolicies) {
    const auto blocks = std::count(policies.begin(), policies.end(), policy);
    if (blocks == 0) continue;
    if (blocks == std::ssize(policies)) return "all " + std::string(name(policy));
    out += (out.empty() ? "" : ", ") + std::to_string(blocks) + " " + std::string(name(policy));
  }
  return out;
}

std::string stacks_table(const TrainConfig& config, const TrainResult& result) {
  if (result.stacks.empty()) {
    return "<p>An ordinary network without reversible stacks, trained in mode " +
           draw::escaped(config.mode) + ".</p>\n";
  }
  std::array<bool, kPolicies.size()> used{};
  std::string rows;
  for (std::size_t i = 0; i < result.stacks.size(); ++i) {
    const std::vector<Policy>& policies = result.stacks[i].policies;
    for (Policy policy : policies) used[static_cast<std::size_t>(policy)] = true;
    rows += "<tr><td>" + std::to_string(i) + "</td><td>" +
            (result.stacks[i].overlap ? "two lanes" : "one lane") + "</td><td>" +
            summary(policies) + chips(policies) + "</td></tr>\n";
  }
  std::string out =
      "<table class=\"stacks\">\n"
      "<thead><tr><th>Stack</th><th>Backward pass</th><th>Blocks</th></tr></thead>\n<tbody>\n" +
      rows + "</tbody>\n</table>\n<ul class=\"policies\">\n";
  for (std::size_t i = 0; i < kPolicies.size(); ++i) {
    if (!used[static_cast<std::size_t>(kPolicies[i])]) continue;
    const std::string policy(name(kPolicies[i]));
    out += "<li>" + chip(kPolicies[i], policy, policy) + " " +
           draw::escaped(meaning(kPolicies[i])) + "</li>\n";
  }
  return out + "</ul>\n";
}

std::string left_out(const std::vector<std::string>& skipped) {
  constexpr std::size_t kShown = 100;
  if (skipped.empty()) return "";
  std::string out = "<details>\n<summary>" +
                    draw::escaped(count_of(skipped.size(), "image", "images")) +
                    " could not be read</summary>\n<ul class=\"files\">\n";
  for (std::size_t i = 0; i < std::min(skipped.size(), kShown); ++i)
    out += draw::element("li", skipped[i]);
  if (skipped.size() > kShown) {
    out += draw::element("li", "and " + std::to_string(skipped.size() - kShown) + " more");
  }
  return draw::section("Images left out", out + "</ul>\n</details>\n");
}

// What differs from the defaults stands out.
std::string configuration(const TrainConfig& config) {
  const std::vector<ConfigField> all = fields(config), defaults = fields({});
  std::string out =
      "<p>Values in bold differ from the defaults.</p>\n<table class=\"config\">\n<thead><tr>"
      "<th>Field</th><th>Value</th><th>Meaning</th></tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool changed = i >= defaults.size() || all[i].value != defaults[i].value;
    const std::string value = draw::escaped(all[i].value.empty() ? "\u2013" : all[i].value);
    out += "<tr><td class=\"key\">" + draw::escaped(all[i].key) + "</td><td class=\"value\">" +
           (changed ? "<b>" + value + "</b>" : value) + "</td><td class=\"quiet\">" +
           draw::escaped(all[i].help) + "</td></tr>\n";
  }
  return out + "</tbody>\n</table>\n";
}

}  // namespace

std::string run_page(const TrainConfig& config, const TrainResult& result) {
  const std::string title = model_of(config) + " on " + config.data;
  std::string plots;
  for (const std::string& plot : run_plots(result)) plots += draw::figure("", plot);
  const std::string header =
      draw::element("p", std::string(config.plain ? "Ordinary network" : "Reversible network") +
                             ", mode " + config.mode + ", " + config.precision +
                             (config.exact ? ", exact streams" : "") + ", batch " +
                             std::to_string(config.batch) + ". " + outcome(config, result)) +
      data_note(config, result);
  return draw::document(
      {.title = title,
       .style = kRunPageStyle,
       .header = header,
       .main = key_figures(result) + draw::section("Curves and memory", draw::plots(plots)) +
               draw::section("How the blocks were trained", stacks_table(config, result)) +
               left_out(result.skipped) + draw::section("Configuration", configuration(config))});
}

}  // namespace pareprop::train
