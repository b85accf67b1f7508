#include "cli/demo_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/text/fixed.h"
#include "pareprop/trace/lane_picture.h"

namespace pareprop::cli {

const DemoRun* DemoReport::find(Mode mode) const {
  const auto run = std::find_if(runs.begin(), runs.end(), [&](const DemoRun& candidate) {
    return candidate.training.mode == mode;
  });
  return run == runs.end() ? nullptr : &*run;
}

double DemoReport::loss_difference() const {
  double worst = 0.0;
  for (const DemoRun& run : runs) {
    const auto& expected = runs.front().result.losses;
    for (std::size_t step = 0; step < expected.size(); ++step) {
      const double difference = std::abs(run.result.losses[step] - expected[step]);
      if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, difference);
    }
  }
  return worst;
}

bool DemoReport::same_loss() const { return loss_difference() == 0.0; }

bool DemoReport::gradients_hold() const {
  return std::all_of(runs.begin(), runs.end(),
                     [](const DemoRun& run) { return run.gradients.holds; });
}

std::string DemoReport::text(const Terminal& terminal) const {
  const DigitsTraining& training = runs.front().training;
  Table table({{"mode", Align::left},
               {"loss"},
               {"accuracy"},
               {"activations"},
               {"step"},
               {"recomputed"},
               {"gradient error"}});
  for (const DemoRun& run : runs) {
    const DigitsResult& result = run.result;
    table.add_row(
        {std::string(name(run.training.mode)), text::fixed(result.final_loss(), 4),
         percent_text(result.accuracy), bytes_text(static_cast<double>(result.activation_peak)),
         text::fixed(result.step_ms, 1) + " ms", std::to_string(result.recomputed_branches()),
         error_text(run.gradients.max_rel_error) + (run.gradients.holds ? "" : " too large")});
  }
  std::ostringstream text;
  text << table.text() << '\n'
       << kDigitsModel << ", " << training.steps << " steps of batch " << training.batch << ", "
       << name(training.precision) << " branches, exact streams.\n"
       << wrapped(
              "loss: mean of the last 10 steps. accuracy: on images that were not used for "
              "training. activations: peak bytes, without parameters, gradients and optimizer. "
              "step: forward and backward pass, median. recomputed: branches recomputed in a "
              "backward pass, of 16. gradient error: largest relative error of a step with "
              "floating-point streams, against ordinary autograd.")
       << '\n';
  if (const DemoRun* automatic = find(Mode::automatic)) {
    text << "auto: planned for "
         << bytes_text(static_cast<double>(automatic->training.activation_budget))
         << " of activations, half of what mode stored needed.\n";
  }
  text << "\nsame loss in every mode: ";
  if (same_loss()) {
    text << "yes, bit for bit in all " << training.steps << " steps\n";
  } else {
    text << "no, largest difference in " << training.steps
         << " steps: " << error_text(loss_difference()) << '\n';
  }
  if (const DemoRun* parallel = find(Mode::pareprop)) {
    text << "\nThe last backward pass in mode pareprop:\n"
         << lane_picture(parallel->result.graph, parallel->result.timeline, terminal.width,
                         {.unicode = terminal.unicode, .color = terminal.color});
  }
  return text.str();
}

nlohmann::ordered_json DemoReport::json() const {
  const DigitsTraining& training = runs.front().training;
  auto rows = nlohmann::ordered_json::array();
  for (const DemoRun& run : runs) {
    const DigitsResult& result = run.result;
    rows.push_back({{"mode", name(run.training.mode)},
                    {"first_loss", result.losses.front()},
                    {"final_loss", result.final_loss()},
                    {"test_accuracy", result.accuracy},
                    {"step_ms", result.step_ms},
                    {"activation_peak_bytes", result.activation_peak},
                    {"recomputed_branches", result.recomputed_branches()},
                    {"drift", result.drift},
                    {"max_rel_error", run.gradients.max_rel_error},
                    {"holds", run.gradients.holds}});
    if (!run.gradients.error.empty()) rows.back()["error"] = run.gradients.error;
  }
  return {{"model", kDigitsModel},
          {"steps", training.steps},
          {"batch", training.batch},
          {"precision", name(training.precision)},
          {"seed", training.seed},
          {"device", training.device.str()},
          {"loss_difference", loss_difference()},
          {"same_loss", same_loss()},
          {"ok", same_loss() && gradients_hold()},
          {"rows", std::move(rows)}};
}

}  // namespace pareprop::cli
