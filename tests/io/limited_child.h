#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <string>

namespace pareprop::io::testing {

enum class AtLimit { error, killed };

struct ChildResult {
  bool killed = false;
  std::string error;  // empty: it ran to its end
};

// Runs it in a child process that may write at most `limit` bytes to a file. The write that would
// go beyond fails ("File too large", as a full disk would fail it with its own message), or the
// system kills the process there and then.
template <class Run>
ChildResult run_limited(rlim_t limit, AtLimit at_limit, Run&& run) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    const rlimit file_size{limit, limit};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGXFSZ, at_limit == AtLimit::error ? SIG_IGN : SIG_DFL);
    setrlimit(RLIMIT_FSIZE, &file_size);
    std::string error;
    try {
      run();
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    const bool told = write(pipe_ends[1], error.data(), error.size()) >= 0;
    _exit(told ? 0 : 1);
  }
  close(pipe_ends[1]);
  ChildResult result;
  char buffer[512];
  for (ssize_t got = 0; (got = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) {
    result.error.append(buffer, static_cast<std::size_t>(got));
  }
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ;
  EXPECT_TRUE(result.killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
  return result;
}

}  // namespace pareprop::io::testing
