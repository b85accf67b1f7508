#include "pareprop/ops/mac_counter.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <string>

namespace pareprop {
namespace {

struct Counted {
  double all = 0.0, forward = 0.0;

  void add(double macs) {
    all += macs;
    if (torch::autograd::get_current_graph_task_id() < 0) forward += macs;
  }
};
thread_local Counted counted;

// One callback of torch's serves all counters of a thread.
thread_local int counters = 0;
thread_local at::CallbackHandle handle = 0;

// Called by torch for every operator. Composite ones arrive again as the parts they are made of, so
// only the innermost are counted.
std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  const std::string name = call.name();
  const auto inputs = call.inputs();
  auto sizes = [&](std::size_t i) { return inputs[i].toTensor().sizes(); };
  auto product = [&](std::size_t a, std::size_t b) {
    counted.add(static_cast<double>(inputs[a].toTensor().numel()) *
                static_cast<double>(sizes(b).back()));
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
    counted.add(outputs * kernel);
  }
  return nullptr;
}

}  // namespace

void add_meta_macs(double macs) { counted.add(macs); }

MacCounter::MacCounter() : before_(counted.all), forward_before_(counted.forward) {
  if (counters++ > 0) return;
  handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&count).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}
MacCounter::~MacCounter() {
  if (--counters == 0) at::removeCallback(handle);
}
double MacCounter::macs() const { return counted.all - before_; }
double MacCounter::forward_macs() const { return counted.forward - forward_before_; }

}  // namespace pareprop
