#pragma once

#include <string>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// The step as JSON for Perfetto or chrome://tracing. Times are microseconds from the start of the
// step. Rows: data, forward, the kinds of tasks of each lane, other backward, communication,
// optimizer. A row without spans is left out; if spans of a row overlap, there is a second row.
// Counters: live bytes by tag and in total. The summary (summary.h) is the member "otherData".
std::string chrome_trace(const StepTrace& trace);

}  // namespace pareprop
