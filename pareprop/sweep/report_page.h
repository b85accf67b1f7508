#pragma once

#include <string>
#include <vector>

#include "pareprop/sweep/results_file.h"

namespace pareprop::sweep {

// Files of one machine as one: of rows that are the same, the last. Throws std::invalid_argument
// for none, and for files of different machines.
sweep::Results merged(const std::vector<sweep::Results>& files);

// A page about a sweep, in one file that needs no other: throughput against batch size, gain of
// overlap, throughput against memory, memory against depth, time by phase, and every row.
std::string report_page(const sweep::Results& results);

}  // namespace pareprop::sweep
