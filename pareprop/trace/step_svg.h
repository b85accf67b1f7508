#pragma once

#include <string>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// The step as one SVG file that a browser shows: the stages, the training thread, the lanes,
// communication if there was any, and below them, on the same time axis, live memory by tag. Every
// box has a tooltip. Colours follow the light or dark setting of the browser.
std::string step_svg(const StepTrace& trace);

}  // namespace pareprop
