#include "pareprop/lanes/run_scope.h"

#include <stdexcept>

namespace pareprop {
namespace {

thread_local const RunScope* innermost = nullptr;

}  // namespace

RunScope::RunScope(const void* executor) : executor_(executor), outer_(innermost) {
  for (const RunScope* scope = outer_; scope != nullptr; scope = scope->outer_) {
    if (scope->executor_ == executor) {
      throw std::logic_error(
          "executor: a task started a run on the executor that runs it, which would wait for "
          "itself forever; run the inner graph on a SerialLane or on an executor of its own");
    }
  }
  innermost = this;
}

RunScope::~RunScope() { innermost = outer_; }

LaneScope::LaneScope(const RunScope& caller) : previous_(innermost) { innermost = &caller; }

LaneScope::~LaneScope() { innermost = previous_; }

}  // namespace pareprop
