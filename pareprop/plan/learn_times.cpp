#include "pareprop/plan/learn_times.h"

#include <exception>

#include "pareprop/plan/step_times_file.h"
#include "pareprop/reversible/network_memory.h"

namespace pareprop::plan {
namespace {

// What times depend on, but the machine.
std::string key(const std::string& name, const Network& network, const StepShape& shape) {
  std::string words = name;
  for (const int depth : network.depths()) words += ", " + std::to_string(depth) + " blocks";
  std::int64_t parameters = 0;
  for (const at::Tensor& weight : network.weights()) parameters += weight.numel();
  return words + ", " + std::to_string(parameters) + " parameters, batch " +
         std::to_string(shape.batch) + ", " + std::string(pareprop::name(shape.precision)) + ", " +
         std::string(pareprop::name(shape.arithmetic));
}

}  // namespace

std::string network_name(const std::string& model, std::int64_t tokens) {
  return model + ", " + std::to_string(tokens) + " tokens";
}

std::optional<StepTimes> learn_times(Planner& planner, Network& network,
                                     const LearnOptions& learn) {
  if (planner.plain()) return std::nullopt;
  auto say = [&](const std::string& what) {
    if (learn.on_message) learn.on_message(what);
  };
  auto fits = [&](Mode mode) {
    return planner.predict(planner.all(mode)).total_peak <= learn.budget;
  };
  const c10::Device device = device_of(network);
  std::optional<StepTimesFile> file;
  if (learn.folder) {
    file.emplace(*learn.folder, key(learn.network, network, planner.shape()), device);
    const auto [times, why_not] = learn.again ? StepTimesFile::Found{} : file->read();
    if (times && times->stacks.size() == network.stacks().size()) {
      planner.use(*times);
      return times;
    }
    if (!why_not.empty()) say(why_not + ": the times are measured again");
  }
  if (!fits(Mode::reprop)) {
    planner.use(measure_macs_per_second(device));
    return std::nullopt;
  }
  const NetworkRestored restored(network);
  network.set_options(
      {.precision = planner.shape().precision, .arithmetic = planner.shape().arithmetic});
  const StepTimes times =
      measure_step_times(network, planner.shape().batch, fits(Mode::pareprop), learn.on_step);
  planner.use(times);
  if (file) {
    try {
      file->write(times);
    } catch (const std::exception& error) {
      say(std::string("the measured times could not be saved: ") + error.what());
    }
  }
  return times;
}

}  // namespace pareprop::plan
