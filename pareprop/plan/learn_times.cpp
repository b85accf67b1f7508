#include "pareprop/plan/learn_times.h"

#include <exception>

#include "pareprop/plan/step_times_file.h"

namespace pareprop::plan {
namespace {

// What times depend on, but the machine.
std::string key(const std::string& network, const models::Model& model, const StepShape& shape) {
  std::string words = network;
  for (const Stack& stack : model.stacks())
    words += ", " + std::to_string(stack->depth()) + " blocks";
  return words + ", " + std::to_string(model.parameter_count()) + " parameters, " +
         std::to_string(model.tokens()) + " tokens, batch " + std::to_string(shape.batch) + ", " +
         std::string(name(shape.precision)) + ", " + std::string(name(shape.arithmetic));
}

}  // namespace

std::optional<StepTimes> learn_times(Planner& planner, models::Model& model,
                                     const models::Batch& batch, const StackOptions& options,
                                     const LearnOptions& learn) {
  if (planner.plain()) return std::nullopt;
  auto say = [&](const std::string& what) {
    if (learn.on_message) learn.on_message(what);
  };
  auto fits = [&](Mode mode) {
    return planner.predict(planner.all(mode)).total_peak <= learn.budget;
  };
  std::optional<StepTimesFile> file;
  if (learn.folder) {
    file.emplace(*learn.folder, key(learn.network, model, planner.shape()));
    const auto [times, why_not] = learn.again ? StepTimesFile::Found{} : file->read();
    if (times && times->stacks.size() == model.stacks().size()) {
      planner.use(*times);
      return times;
    }
    if (!why_not.empty()) say(why_not + ": measured again");
  }
  if (!fits(Mode::reprop)) {
    planner.use(measure_macs_per_second());
    return std::nullopt;
  }
  const StepTimes times =
      measure_step_times(model, batch, options, fits(Mode::pareprop), learn.on_step);
  planner.use(times);
  if (file) {
    try {
      file->write(times);
    } catch (const std::exception& error) {
      say(std::string("measured times were not kept: ") + error.what());
    }
  }
  return times;
}

}  // namespace pareprop::plan
