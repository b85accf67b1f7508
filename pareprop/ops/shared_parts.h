#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace pareprop {

// Hands out the parts of one piece of work, in order, each once.
class NextPart {
 public:
  explicit NextPart(std::int64_t count) : count_(count) {}
  bool take(std::int64_t& part) { return (part = next_.fetch_add(1)) < count_; }

 private:
  const std::int64_t count_;
  std::atomic<std::int64_t> next_{0};
};

// Calls worker(next) on every intra-op thread of this thread, and on those of whoever helps it;
// workers take parts until none is left. What a worker throws is thrown here.
void run_parts(std::int64_t count, const std::function<void(NextPart&)>& worker);

// Calls `work` on this thread, and meanwhile on others that have nothing to do; returns when all
// calls have returned.
using Help = std::function<void(const std::function<void()>& work)>;

// While it lives, `help` helps this thread with its parts. It must outlive the scope.
class HelpScope {
 public:
  explicit HelpScope(const Help& help);
  ~HelpScope();
  HelpScope(const HelpScope&) = delete;
  HelpScope& operator=(const HelpScope&) = delete;

 private:
  const Help* previous_;
};

}  // namespace pareprop
