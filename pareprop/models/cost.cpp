#include "pareprop/models/cost.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <string>

#include "pareprop/memory/meta_meter.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/meta_device.h"

namespace pareprop::models {
namespace {

thread_local double counted_macs = 0.0;

// Called by torch for every operator. Composite ones arrive again as the parts they are made of, so
// only the innermost are counted.
std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  const std::string name = call.name();
  const auto inputs = call.inputs();
  auto sizes = [&](std::size_t i) { return inputs[i].toTensor().sizes(); };
  auto product = [&](std::size_t a, std::size_t b) {
    counted_macs +=
        static_cast<double>(inputs[a].toTensor().numel()) * static_cast<double>(sizes(b).back());
  };
  if (name == "aten::mm" || name == "aten::bmm") {
    product(0, 1);
  } else if (name == "aten::addmm" || name == "aten::baddbmm") {
    product(1, 2);
  } else if (name == "aten::convolution_overrideable" || name == "aten::_convolution") {
    // Per output element: the kernel of one group.
    const auto weight = sizes(1);
    const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector();
    double outputs = static_cast<double>(sizes(0)[0]) * static_cast<double>(weight[0]);
    double kernel = static_cast<double>(weight[1]);
    for (std::size_t d = 2; d < weight.size(); ++d) {
      const auto in = sizes(0)[d];
      outputs *= static_cast<double>((in + 2 * padding[d - 2] - weight[d]) / stride[d - 2] + 1);
      kernel *= static_cast<double>(weight[d]);
    }
    counted_macs += outputs * kernel;
  }
  return nullptr;
}

double forward_macs(Model& model, const Batch& batch) {
  c10::AutoGradMode no_graph(false);
  const MacCounter counter;
  model.forward(batch);
  return counter.macs();
}

double activation_peak(Model& model, const Batch& batch, Mode mode) {
  model.set_stack_options({.mode = mode, .executor = nullptr});
  memory::reset_peaks();
  const auto before = memory::usage().activation_live;
  model.loss(batch).backward();
  const auto peak = memory::usage().activation_peak - before;
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  return static_cast<double>(peak);
}

}  // namespace

MacCounter::MacCounter() : before_(counted_macs + meta_macs()) {
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&count).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}
MacCounter::~MacCounter() { at::removeCallback(handle_); }
double MacCounter::macs() const { return counted_macs + meta_macs() - before_; }

Cost cost_of(Model& model) {
  memory::install_meta_meter();
  const Batch batch = model.example(1, 0);
  const bool plain = model.stacks().empty();
  return {.macs = forward_macs(model, batch),
          .activation_bytes_stored = activation_peak(model, batch, Mode::stored),
          .activation_bytes_reversible =
              activation_peak(model, batch, plain ? Mode::checkpoint : Mode::reprop)};
}

}  // namespace pareprop::models
