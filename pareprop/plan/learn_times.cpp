#include "pareprop/plan/learn_times.h"

#include <algorithm>
#include <exception>

#include "pareprop/plan/step_times_file.h"
#include "pareprop/reversible/network_memory.h"

namespace pareprop::plan {
namespace {

// What times depend on, but the machine.
std::string key(const std::string& name, const Network& network, const StepShape& shape) {
  std::string words = name;
  for (const int depth : network.depths()) words += ", " + std::to_string(depth) + " blocks";
  if (network.plain()) words += ", plain";
  std::int64_t parameters = 0;
  std::int64_t trained = 0;
  for (const at::Tensor& weight : network.weights()) {
    parameters += weight.numel();
    if (weight.requires_grad()) trained += weight.numel();
  }
  words += ", " + std::to_string(parameters) + " parameters, ";
  if (trained < parameters) words += std::to_string(trained) + " of them trained, ";
  return words + std::string(pareprop::name(shape.precision)) + ", " +
         std::string(pareprop::name(shape.arithmetic));
}

}  // namespace

std::string network_name(const std::string& model, std::int64_t tokens) {
  return model + ", " + std::to_string(tokens) + " tokens";
}

namespace {

void say(const LearnOptions& learn, const std::string& what) {
  if (learn.on_message) learn.on_message(what);
}

// Of these sizes and of those that were measured before. One that is missing has all measured anew:
// times of another day do not compare.
SizeTimes learned(Network& network, const StepShape& shape, const std::vector<StepSize>& sizes,
                  const LearnOptions& learn) {
  std::optional<StepTimesFile> file;
  SizeTimes known;
  if (learn.folder) {
    file.emplace(*learn.folder, key(learn.network, network, shape), device_of(network));
    StepTimesFile::Found found = learn.again ? StepTimesFile::Found{} : file->read();
    if (!found.why_not.empty()) say(learn, found.why_not + ": the times are measured again");
    known = std::move(found.times);
    const bool all = std::all_of(sizes.begin(), sizes.end(), [&](const StepSize& size) {
      const auto own = known.find(size);
      return own != known.end() && own->second.stacks.size() == network.stacks().size();
    });
    if (all) {
      std::erase_if(known, [&](const auto& entry) {
        return std::find(sizes.begin(), sizes.end(), entry.first) == sizes.end();
      });
      return known;
    }
  }
  say(learn, "measuring a few training steps, to plan with their times");
  const NetworkRestored restored(network);
  network.set_numerics(shape.precision, shape.arithmetic);
  const SizeTimes times = measure_step_times(network, sizes, learn.on_step);
  if (file) {
    for (const auto& [size, own] : times) known[size] = own;
    try {
      file->write(known);
    } catch (const std::exception& error) {
      say(learn, std::string("the measured times could not be saved: ") + error.what());
    }
  }
  return times;
}

}  // namespace

std::optional<StepTimes> learn_times(Planner& planner, Network& network,
                                     const LearnOptions& learn) {
  if (planner.without_stacks()) return std::nullopt;
  const auto fits = [&](bool overlap) {
    return planner.predict(planner.recomputing(overlap)).total_peak <= learn.budget;
  };
  const StepShape& shape = planner.shape();
  if (!fits(false)) {
    planner.use(measure_macs_per_second(device_of(network)));
    return std::nullopt;
  }
  const StepSize size{.samples = shape.batch,
                      .adds = shape.accumulates,
                      .overlapped = fits(true),
                      .drops_gradients = shape.takes_gradients(shape.accumulates)};
  const StepTimes times = learned(network, shape, {size}, learn).at(size);
  planner.use(times);
  return times;
}

SizeTimes learn_times(JointSearch& search, Network& network, const LearnOptions& learn) {
  if (search.without_stacks()) return {};
  search.use(measure_macs_per_second(device_of(network)));
  const std::vector<StepSize> sizes = search.sizes_to_measure(learn.budget);
  if (sizes.empty()) return {};
  SizeTimes times = learned(network, search.shape(), sizes, learn);
  search.use(times);
  return times;
}

}  // namespace pareprop::plan
