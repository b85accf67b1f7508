#pragma once

#include <string>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// The step as JSON for Perfetto or chrome://tracing, times in microseconds from its beginning.
// Rows: data, forward, for each lane the kinds of tasks that it ran, other backward, communication,
// optimizer; those that have no spans are left out, and spans that overlap in one get a second.
// Counters: live bytes by tag, and in all. The summary (step_summary.h) is the member "otherData".
std::string chrome_trace(const StepTrace& trace);

}  // namespace pareprop
