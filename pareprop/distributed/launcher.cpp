#include "pareprop/distributed/launcher.h"

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "pareprop/distributed/launch_variables.h"
#include "pareprop/io/file_descriptor.h"

namespace pareprop::distributed {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::uint16_t free_port() {
  const io::FileDescriptor file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!file || bind(file.get(), any, size) != 0 || getsockname(file.get(), any, &size) != 0) {
    fail("no free port was found on this machine");
  }
  return ntohs(address.sin_port);
}

int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

// A few on each core may be an experiment; many more are a slip of the finger, and would take all
// memory before they say so.
int most_processes() { return std::max(16, 8 * cores()); }

// Ours before those that are there: of two with one name, the first counts.
std::vector<std::string> environment_of(const LaunchVariables& variables) {
  std::vector<std::string> all = as_environment(variables);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {  // NOLINT(concurrency-mt-unsafe)
    all.push_back("OMP_NUM_THREADS=" + std::to_string(std::max(1, cores() / variables.world)));
  }
  const auto ours = all.size();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced =
        std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(ours),
                    [&](const std::string& own) { return own.starts_with(name); });
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

constexpr const char* kOwnProgram = "/proc/self/exe";

// By its name, which `ps` shows. Where it was removed or replaced since it was started, nothing is
// found under that name: the link itself still leads to it.
std::string own_program() {
  std::error_code none;
  return std::filesystem::read_symlink(kOwnProgram, none).string();
}

// Signals come when they are waited for, and not in between, as long as this lives.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&held_, signal);
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& before() const { return before_; }

  std::optional<siginfo_t> wait(std::chrono::milliseconds most) const {
    const timespec time{most.count() / 1000, (most.count() % 1000) * 1000000};
    siginfo_t info{};
    if (sigtimedwait(&held_, &info, &time) < 0) return std::nullopt;
    return info;
  }

 private:
  sigset_t held_{}, before_{};
};

class Children {
 public:
  Children(const HeldSignals& signals, const LaunchOptions& options)
      : signals_(signals), options_(options) {}
  ~Children() {
    signal_all(SIGKILL);
    while (!running_.empty()) collect(0);
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  void start(const LaunchVariables& variables, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program_invocation_name);
    std::vector<std::string> environment = environment_of(variables);
    // Between fork and exec nothing may allocate: another thread may have held the lock.
    const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
    const std::string program = own_program();
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) fail("a process could not be started");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      pthread_sigmask(SIG_SETMASK, &signals_.before(), nullptr);
      if (getppid() == parent) {
        execve(program.c_str(), argv.data(), envp.data());
        execve(kOwnProgram, argv.data(), envp.data());
      }
      _exit(127);
    }
    running_.push_back({child, variables.rank});
  }

  int run() {
    while (!running_.empty()) {
      const auto signal = signals_.wait(std::chrono::milliseconds(500));
      if (signal && signal->si_signo != SIGCHLD) forward(*signal);
      collect(WNOHANG);
      if (Clock::now() > kill_at_) signal_all(SIGKILL);
    }
    return result_;
  }

 private:
  // A terminal has signalled the others itself: they are of the same group.
  void forward(const siginfo_t& signal) {
    stopping_ = true;
    if (signal.si_code <= 0) end_all(signal.si_signo);
  }

  // One that is stopped (SIGSTOP) is continued: it finds the others gone, and rank 0 can save.
  void end_all(int signal) {
    signal_all(signal);
    signal_all(SIGCONT);
  }

  void signal_all(int signal) {
    for (const Child& child : running_) kill(child.pid, signal);
  }

  // Only ours: the program may have other children.
  void collect(int flags) {
    for (std::size_t i = 0; i < running_.size();) {
      int status = 0;
      const pid_t ended = waitpid(running_[i].pid, &status, flags);
      if (ended == 0 || (ended < 0 && errno == EINTR)) {
        ++i;
        continue;
      }
      const int rank = running_[i].rank;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      note(rank, status);
    }
  }

  void note(int rank, int status) {
    if (status == 0 || result_ != 0) return;
    const bool by_signal = WIFSIGNALED(status);
    const int number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
    result_ = by_signal ? 128 + number : number;
    // Whoever was told to stop and does is no failure.
    const bool as_told = stopping_ && !by_signal && number > 128;
    // Those that were told once may be saving: a second signal would end them at once.
    if (!stopping_) end_all(SIGTERM);
    kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(options_.grace_seconds));
    if (as_told || !options_.on_failure) return;
    const char* const name = by_signal ? sigdescr_np(number) : nullptr;
    options_.on_failure("rank " + std::to_string(rank) +
                        (by_signal ? " was ended by signal " : " ended with exit code ") +
                        std::to_string(number) +
                        (name != nullptr ? " (" + std::string(name) + ")" : std::string()));
  }

  struct Child {
    pid_t pid;
    int rank;
  };

  const HeldSignals& signals_;
  const LaunchOptions& options_;
  std::vector<Child> running_;
  int result_ = 0;
  bool stopping_ = false;  // a signal to stop was passed on
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace

std::vector<std::string> without_nproc(const std::vector<std::string>& arguments) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--nproc") {
      ++i;
    } else if (!arguments[i].starts_with("--nproc=")) {
      rest.push_back(arguments[i]);
    }
  }
  return rest;
}

int launch(int processes, const std::vector<std::string>& arguments, const LaunchOptions& options) {
  if (processes < 1) {
    throw std::invalid_argument("--nproc is " + std::to_string(processes) +
                                ", expected 1 or more processes");
  }
  const int most = most_processes();
  if (processes > most) {
    throw std::invalid_argument("--nproc is " + std::to_string(processes) + ", expected at most " +
                                std::to_string(most) + " on this machine with " +
                                std::to_string(cores()) +
                                " cores: more processes than cores are slower, and each needs "
                                "memory of its own");
  }
  const std::uint16_t port = free_port();
  const HeldSignals signals;
  Children children(signals, options);
  for (int rank = 0; rank < processes; ++rank) {
    children.start({.rank = rank, .local_rank = rank, .world = processes, .port = port}, arguments);
  }
  return children.run();
}

}  // namespace pareprop::distributed
