#pragma once

#include <string>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// The step as a self-contained SVG file for people without a viewer of traces: the stages, what the
// training thread did, the lanes, communication where there was some, and below them, on the same
// axis of time, live memory by tag. Every box has a tooltip. Colours follow the reader's light or
// dark setting.
std::string step_svg(const StepTrace& trace);

}  // namespace pareprop
