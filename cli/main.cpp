#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "cli/run.h"

namespace {

// A program that is started without standard input, output or error would give their numbers to the
// first files it opens, and write its messages into them.
void open_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (fcntl(number, F_GETFD) >= 0) continue;
    if (open("/dev/null", O_RDWR) != number) _exit(1);  // the lowest free number is this one
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  // A limit on the size of files (ulimit -f) is an error of the write then, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  return pareprop::cli::run(argc, argv, std::cout, std::cerr);
}
