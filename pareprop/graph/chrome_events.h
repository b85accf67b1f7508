#pragma once

#include <string>
#include <string_view>

namespace pareprop {

// Events of one process in Chrome's trace format, which Perfetto reads. Arguments are JSON members,
// `"lane":1,"block":3`; times are seconds from the beginning of the trace.
class ChromeEvents {
 public:
  explicit ChromeEvents(std::string_view process);

  // Rows are shown in the order of their numbers, which are 1 or more. Slices of a row must not
  // overlap unless one is inside the other.
  void add_row(int row, std::string_view title);
  void add_slice(int row, std::string_view name, std::string_view category, double begin,
                 double end, const std::string& arguments);
  // Every argument is a curve.
  void add_counter(std::string_view name, double time, const std::string& arguments);

  // The file. `other`: members of the object besides the events, each followed by a comma.
  std::string text(const std::string& other = "") const;

 private:
  void add(const std::string& event);
  void add_metadata(std::string_view name, int row, const std::string& arguments);

  std::string events_;
};

}  // namespace pareprop
