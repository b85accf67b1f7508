#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include "cli/printable_stream.h"

namespace pareprop::cli {
namespace {

constexpr int kNarrowest = 40;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Terminal terminal_of(const std::ostream& stream) {
  Terminal terminal;
  const std::ostream* const target = &behind(stream);
  const int file = target == &std::cout ? STDOUT_FILENO : target == &std::cerr ? STDERR_FILENO : -1;
  if (file < 0 || isatty(file) == 0) return terminal;
  terminal.is_terminal = true;
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = std::max<int>(kNarrowest, size.ws_col);
  }
  terminal.unicode = utf8_locale();
  terminal.color = environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  return terminal;
}

}  // namespace pareprop::cli
