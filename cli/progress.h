#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace pareprop::cli {

// The first parts of a line, two spaces apart, as many as `width` columns have room for.
std::string fitting(const std::vector<std::string>& parts, std::size_t width);

// One line that says what is going on, rewritten in place. Nothing when `err` is not a terminal.
class Progress {
 public:
  explicit Progress(std::ostream& err);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void show_parts(const std::vector<std::string>& parts);
  void clear();

 private:
  std::ostream& err_;
  std::size_t width_;  // 0: not a terminal
  bool shown_ = false;
};

}  // namespace pareprop::cli
