#include "pareprop/ops/shared_parts.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace pareprop {
namespace {
thread_local const Help* helper = nullptr;
}  // namespace

HelpScope::HelpScope(const Help& help) : previous_(helper) { helper = &help; }
HelpScope::~HelpScope() { helper = previous_; }

void run_parts(std::int64_t count, const std::function<void(NextPart&)>& worker) {
  NextPart next(count);
  const std::function<void()> work = [&] {
    const std::int64_t threads = std::min<std::int64_t>(count, at::get_num_threads());
    at::parallel_for(0, threads, 1, [&](std::int64_t, std::int64_t) { worker(next); });
  };
  if (helper == nullptr) return work();
  (*helper)(work);
}

}  // namespace pareprop
