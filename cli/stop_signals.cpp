#include "cli/stop_signals.h"

#include <csignal>

namespace pareprop::cli {
namespace {

volatile std::sig_atomic_t received_signal = 0;

void remember(int number) { received_signal = number; }

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

StopSignals::~StopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int StopSignals::received() { return received_signal; }

}  // namespace pareprop::cli
