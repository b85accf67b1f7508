#include "pareprop/models/cost.h"

#include <c10/core/GradMode.h>

#include "pareprop/memory/meta_meter.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/mac_counter.h"

namespace pareprop::models {
namespace {

double forward_macs(Model& model, const Batch& batch) {
  c10::AutoGradMode no_graph(false);
  const MacCounter counter;
  model.forward(batch);
  return counter.macs();
}

double activation_peak(Model& model, const Batch& batch, Mode mode) {
  model.set_mode(mode);
  memory::reset_peaks(memory::Counted::meta);
  const auto before = memory::usage(memory::Counted::meta).activation_live;
  model.loss(batch).backward();
  const auto peak = memory::usage(memory::Counted::meta).activation_peak - before;
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  return static_cast<double>(peak);
}

}  // namespace

Cost cost_of(Model& model) {
  const NetworkRestored restored(model);
  memory::install_meta_meter();
  const Batch batch = model.example(1, 0);
  return {.macs = forward_macs(model, batch),
          .activation_bytes_stored = activation_peak(model, batch, Mode::stored),
          .activation_bytes_reversible = activation_peak(model, batch, model.leanest_mode())};
}

}  // namespace pareprop::models
