#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pareprop/distributed/launch_variables.h"
#include "tests/distributed/process_state.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::distributed::testing {

// train_worker in a process of its own, killed if it is still there at the end; so are those that
// it started.
class Worker {
 public:
  Worker(std::vector<std::string> arguments, const std::vector<std::string>& environment = {}) {
    std::string program = TRAIN_WORKER;
    std::vector<char*> argv = {program.data()};
    for (std::string& each : arguments) argv.push_back(each.data());
    argv.push_back(nullptr);
    const std::string errors = (folder_ / "errors").string();
    pid_ = group_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      for (const std::string& each : environment) putenv(const_cast<char*>(each.c_str()));
      setenv("OMP_NUM_THREADS", "1", 1);
      const int file = open(errors.c_str(), O_WRONLY | O_CREAT, 0600);
      dup2(file, STDERR_FILENO);
      execv(program.c_str(), argv.data());
      _exit(126);
    }
  }
  ~Worker() {
    if (group_ > 0) ::kill(-group_, SIGKILL);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void kill(int signal) const { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }

  // Its exit code, 128 + signal; fails the test when it does not end in time.
  int wait(std::chrono::seconds most = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + most;
    while (std::chrono::steady_clock::now() < end) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "a process did not end; it said: " << errors();
    return -1;
  }

  std::string errors() const { return io::testing::content(folder_ / "errors"); }

 private:
  io::testing::TemporaryFolder folder_;
  pid_t pid_ = 0, group_ = 0;
};

// One a rank, as torchrun would start them.
inline std::vector<std::unique_ptr<Worker>> start_workers(
    int world, std::uint16_t port, const std::vector<std::string>& arguments) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int rank = 0; rank < world; ++rank) {
    workers.push_back(std::make_unique<Worker>(
        arguments,
        as_environment({.rank = rank, .local_rank = rank, .world = world, .port = port})));
  }
  return workers;
}

}  // namespace pareprop::distributed::testing
