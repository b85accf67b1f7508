#include "cli/progress.h"

#include "cli/printable_stream.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "pareprop/text/escape.h"

namespace pareprop::cli {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";

}  // namespace

Progress::Progress(std::ostream& err) : err_(err), width_(0) {
  const Terminal terminal = terminal_of(err);
  if (terminal.is_terminal) width_ = static_cast<std::size_t>(terminal.width);
}

void Progress::show(const std::string& text) {
  if (width_ == 0) return;
  write_raw(err_, kEraseLine);
  err_ << first_columns(text::printable(text), width_ - 1) << std::flush;
  shown_ = true;
}

std::string fitting(const std::vector<std::string>& parts, std::size_t width) {
  std::string line;
  for (const std::string& part : parts) {
    const std::string longer = line.empty() ? part : line + "  " + part;
    if (first_columns(longer, width) != longer) break;
    line = longer;
  }
  return line;
}

void Progress::show_parts(const std::vector<std::string>& parts) {
  if (width_ > 0) show(fitting(parts, width_ - 1));
}

void Progress::clear() {
  if (shown_) {
    write_raw(err_, kEraseLine);
    err_ << std::flush;
  }
  shown_ = false;
}

}  // namespace pareprop::cli
