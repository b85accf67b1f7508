#include "cli/stop_signals.h"

#include <csignal>
#include <ctime>

namespace pareprop::cli {
namespace {

volatile std::sig_atomic_t received_signal = 0;
volatile std::time_t received_at = 0;

// Who stops a whole group of processes often signals each of them twice within a moment.
constexpr std::time_t kMoment = 2;

void remember(int number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (received_signal == 0) {
    received_signal = number;
    received_at = now.tv_sec;
  } else if (now.tv_sec - received_at >= kMoment) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

StopSignals::~StopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int StopSignals::received() { return received_signal; }

}  // namespace pareprop::cli
