#pragma once

#include <iosfwd>

namespace pareprop::cli {

// The program `pareprop`. Returns 0 on success, 1 when something did not hold or could not be done,
// 2 when the command line was wrong; in both cases one line on `err` says what, what was expected
// and what to do. Installs the caching allocator, for the rest of the process.
int run(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace pareprop::cli
