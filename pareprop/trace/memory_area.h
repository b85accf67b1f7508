#pragma once

#include <functional>
#include <string>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// Where a drawing of memory goes.
struct MemoryFrame {
  double left = 0.0, top = 0.0, width = 0.0, height = 0.0;
  std::function<double(double time)> x;
};

// Class of the i-th tag's colour: "m0", "m1", ...
std::string memory_class(std::size_t tag);
// Their rules, for lane_style().
extern const std::string_view kMemoryLight, kMemoryDark;

// SVG elements: an area for each tag, one on top of the other, with a scale in bytes. Of samples
// that fall on one pixel the largest is drawn, so that no peak is lost.
std::string memory_area(const StepTrace& trace, const MemoryFrame& frame);

}  // namespace pareprop
