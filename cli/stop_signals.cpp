#include "cli/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <ctime>
#include <string_view>

namespace pareprop::cli {
namespace {

constexpr int kStopping[] = {SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t remembers = 0;
volatile std::sig_atomic_t received_signal = 0;
volatile std::time_t received_at = 0;

// Who stops a whole group of processes often signals each of them twice within a moment.
constexpr std::time_t kMoment = 2;

// Only what may be called in a signal handler: write() and _exit(), not exit().
[[noreturn]] void end_at_once(int number) {
  constexpr std::string_view kSaid =
      "\npareprop: stopped before the first step; nothing was changed\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kSaid.data(), kSaid.size());
  constexpr int kSignalled = 128;
  _exit(kSignalled + number);
}

void receive(int number) {
  if (remembers == 0) end_at_once(number);
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

bool is_ignored(int number) {
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

StopSignals::StopSignals() {
  remembers = 0;
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = receive;
  action.sa_flags = SA_RESTART;
  for (const int number : kStopping) {
    if (!is_ignored(number)) sigaction(number, &action, nullptr);
  }
  ignore_broken_pipes();
}

StopSignals::~StopSignals() {
  for (const int number : kStopping) {
    if (!is_ignored(number)) std::signal(number, SIG_DFL);
  }
}

void StopSignals::remember() { remembers = 1; }

int StopSignals::received() { return received_signal; }

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace pareprop::cli
