#include "pareprop/graph/chrome_events.h"

#include <cmath>
#include <cstdint>

#include "pareprop/graph/text.h"

namespace pareprop {
namespace {

// The process itself has row 0.
constexpr int kOfProcess = 0;

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string microseconds(std::int64_t nanoseconds) {
  return text::fixed(static_cast<double>(nanoseconds) / 1e3, 3);
}

std::string in_process(int row) { return R"(,"pid":1,"tid":)" + std::to_string(row); }

}  // namespace

ChromeEvents::ChromeEvents(std::string_view process) {
  add_metadata("process_name", kOfProcess, R"("name":)" + text::json(process));
}

void ChromeEvents::add(const std::string& event) {
  events_ += (events_.empty() ? "\n" : ",\n") + event;
}

void ChromeEvents::add_metadata(std::string_view name, int row, const std::string& arguments) {
  add(R"({"ph":"M","name":)" + text::json(name) + in_process(row) + R"(,"args":{)" + arguments +
      "}}");
}

void ChromeEvents::add_row(int row, std::string_view title) {
  add_metadata("thread_name", row, R"("name":)" + text::json(title));
  add_metadata("thread_sort_index", row, R"("sort_index":)" + std::to_string(row));
}

void ChromeEvents::add_slice(int row, std::string_view name, std::string_view category,
                             double begin, double end, const std::string& arguments) {
  // Both ends are rounded, not the length: slices that touch must not overlap by a nanosecond.
  const std::int64_t from = nanoseconds(begin), to = nanoseconds(end);
  add(R"({"ph":"X","name":)" + text::json(name) + R"(,"cat":)" + text::json(category) +
      in_process(row) + R"(,"ts":)" + microseconds(from) + R"(,"dur":)" + microseconds(to - from) +
      R"(,"args":{)" + arguments + "}}");
}

void ChromeEvents::add_counter(std::string_view name, double time, const std::string& arguments) {
  add(R"({"ph":"C","name":)" + text::json(name) + R"(,"pid":1,"ts":)" +
      microseconds(nanoseconds(time)) + R"(,"args":{)" + arguments + "}}");
}

std::string ChromeEvents::text(const std::string& other) const {
  return R"({"displayTimeUnit":"ms",)" + other + R"("traceEvents":[)" + events_ + "\n]}\n";
}

}  // namespace pareprop
