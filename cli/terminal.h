#pragma once

#include <iosfwd>

namespace pareprop::cli {

// What is known of where a stream goes. Only std::cout and std::cerr can be a terminal, also behind
// a PrintableStream.
struct Terminal {
  bool is_terminal = false;
  int width = 80;  // columns
  bool unicode = false;
  bool color = false;
};

Terminal terminal_of(const std::ostream& stream);

}  // namespace pareprop::cli
