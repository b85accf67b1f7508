#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/free_memory.h"
#include "pareprop/memory/meta_meter.h"
#include "python/bindings/bind.h"

namespace pareprop::python {
namespace {

namespace py = pybind11;

py::dict usage() {
  const memory::Usage usage = memory::usage();
  py::dict live, peak, result;
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) {
    const py::str name(std::string(memory::name(static_cast<memory::Tag>(tag))));
    live[name] = usage.live[tag];
    peak[name] = usage.peak[tag];
  }
  result["live"] = usage.total_live;
  result["peak"] = usage.total_peak;
  result["activations_live"] = usage.activation_live;
  result["activations_peak"] = usage.activation_peak;
  result["live_by_tag"] = live;
  result["peak_by_tag"] = peak;
  return result;
}

// What the CPU's allocator, ours or torch's, tells a profiler of this thread.
class PeakOfThread final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device device) override {
    if (!device.is_cpu()) return;
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t live_ = 0, peak_ = 0;
};

// Memory of the CPU at its highest while a function runs, its results included. The meter forgets
// it.
std::int64_t peak_while(const py::object& function) {
  const memory::PeaksKept uncounted;
  const auto peak = std::make_shared<PeakOfThread>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
  const py::object result = function();
  return peak->peak();
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("install_allocator", &memory::install_caching_allocator);
  module.def("allocator_installed", &memory::caching_allocator_installed);
  module.def("install_meta_meter", &memory::install_meta_meter);
  module.def("free_memory", &memory::free_memory);
  module.def("trim", &memory::trim, py::call_guard<py::gil_scoped_release>());
  module.def("reset_peaks", [] { memory::reset_peaks(); });
  module.def("peak_while", &peak_while, py::arg("function"));
  module.def("usage", &usage);
  module.def(
      "live_bytes",
      [](bool meta) {
        return memory::usage(meta ? memory::Counted::meta : memory::Counted::cpu).total_live;
      },
      py::arg("meta") = false);
}

}  // namespace pareprop::python
