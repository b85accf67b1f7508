#include "cli/progress.h"

#include "cli/terminal.h"

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
  err_ << kEraseLine << text.substr(0, width_ - 1) << std::flush;
  shown_ = true;
}

void Progress::clear() {
  if (shown_) err_ << kEraseLine << std::flush;
  shown_ = false;
}

}  // namespace pareprop::cli
