#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "pareprop/plan/choose.h"
#include "python/bindings/bind.h"

namespace pareprop::python {
namespace {

namespace py = pybind11;

// What a dry step showed of one block: Note [The model of the peak].
struct SeenBlock {
  std::int64_t live = 0;
  std::int64_t kept = 0;          // if it is stored
  std::int64_t extra_stored = 0;  // in its backward pass
  std::int64_t extra_checkpointed = 0;
  double macs = 0.0;  // of its forward pass
};

SeenBlock seen_block(std::int64_t live, std::int64_t kept, std::int64_t extra_stored,
                     std::int64_t extra_checkpointed, double macs) {
  return {live, kept, extra_stored, extra_checkpointed, macs};
}

// Modules of others are stored or checkpointed: no budget is enough for anything else.
plan::StackProfile profile_of(const SeenBlock& block) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;
  plan::StackProfile profile;
  profile.coupling = Coupling::residual;
  profile.live = {block.live};
  profile.serial.fill({.kept = kNever});
  const auto cost = [&](Policy policy) -> plan::BlockCost& {
    return profile.serial[static_cast<std::size_t>(policy)];
  };
  cost(Policy::store) = {block.kept, block.extra_stored, {2.0 * block.macs}};
  cost(Policy::checkpoint) = {0, block.extra_checkpointed, {3.0 * block.macs}};
  return profile;
}

using Checkpointed = std::vector<bool>;

std::optional<Checkpointed> choose_checkpoints(const std::vector<SeenBlock>& blocks,
                                               std::int64_t above, std::int64_t below,
                                               std::int64_t budget, const py::object& takes) {
  plan::Profile profile;
  profile.below = below;
  for (const SeenBlock& block : blocks) profile.stacks.push_back(profile_of(block));
  if (!profile.stacks.empty()) profile.stacks.back().above = above;

  struct Best {
    Checkpointed blocks = {};
    plan::Seconds seconds = {};
    std::int64_t bytes = 0;
  };
  std::optional<Best> best;
  plan::close_in(profile, budget, /*overlap=*/false,
                 [&](const plan::Choice& choice) -> std::optional<std::int64_t> {
                   Best found{.seconds = choice.seconds};
                   bool any = false;
                   for (const auto& block : choice.policies) {
                     found.blocks.push_back(block.front() == Policy::checkpoint);
                     any = any || found.blocks.back();
                   }
                   found.bytes = takes(found.blocks).cast<std::int64_t>();
                   const std::int64_t spare = budget - found.bytes;
                   if (spare >= 0 && (!best || std::pair(found.seconds, found.bytes) <
                                                   std::pair(best->seconds, best->bytes))) {
                     best = std::move(found);
                   }
                   if (spare >= 0 && !any) return std::nullopt;
                   return spare;
                 });
  if (!best) return std::nullopt;
  return best->blocks;
}

}  // namespace

void bind_choice(py::module_& module) {
  py::class_<SeenBlock>(module, "SeenBlock", "What a dry step showed of one block.")
      .def(py::init(&seen_block), py::kw_only(), py::arg("live"), py::arg("kept"),
           py::arg("extra_stored"), py::arg("extra_checkpointed"), py::arg("macs"));
  module.def("choose_checkpoints", &choose_checkpoints, py::arg("blocks"), py::kw_only(),
             py::arg("above"), py::arg("below"), py::arg("budget"), py::arg("takes"),
             "Which blocks to checkpoint, from the input on, for the fastest step within a budget; "
             "None if nothing fits. `takes` says what a choice really takes.");
}

}  // namespace pareprop::python
