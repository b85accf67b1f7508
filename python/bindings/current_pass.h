#pragma once

#include <memory>
#include <utility>

#include "pareprop/reversible/pass.h"

namespace pareprop::python {

// The pass that stacks called on this thread belong to. Null: each call is a pass of its own.
inline std::shared_ptr<Pass>& current_pass() {
  thread_local std::shared_ptr<Pass> pass;
  return pass;
}

class PassScope {
 public:
  explicit PassScope(std::shared_ptr<Pass> pass)
      : previous_(std::exchange(current_pass(), std::move(pass))) {}
  ~PassScope() { current_pass() = std::move(previous_); }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  std::shared_ptr<Pass> previous_;
};

}  // namespace pareprop::python
