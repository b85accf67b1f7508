#pragma once

namespace pareprop::cli {

// While one lives, SIGINT, SIGTERM and SIGHUP end the program at once, with exit code 128 + their
// number, until remember() is called. From then on they are remembered; one that comes two seconds
// after the first, or later, ends the program. A signal that was ignored when the program was
// started (nohup) stays ignored. SIGPIPE is ignored: a pipe or terminal that is closed is no reason
// to lose a run.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static void remember();

  // The number of the signal that came since remember(); 0: none.
  static int received();
};

// SIGPIPE does not end this program, nor those that it starts.
void ignore_broken_pipes();

}  // namespace pareprop::cli
