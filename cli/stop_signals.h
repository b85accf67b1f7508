#pragma once

namespace pareprop::cli {

// While one lives, SIGINT and SIGTERM do not end the program but are remembered; one that comes two
// seconds later, or more, does.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The number of the signal that came; 0: none.
  static int received();
};

}  // namespace pareprop::cli
