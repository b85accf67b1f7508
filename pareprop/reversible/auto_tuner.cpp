#include "pareprop/reversible/auto_tuner.h"

#include <algorithm>

#include "pareprop/memory/free_memory.h"

namespace pareprop {
namespace {

double best(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace

bool AutoTuner::enough_trials() const {
  return serial_.size() >= kTrials && overlapped_.size() >= kTrials;
}

bool AutoTuner::decided() const {
  std::lock_guard lock(mutex_);
  return enough_trials();
}

StackOptions AutoTuner::next(const StackOptions& asked, int depth) {
  std::lock_guard lock(mutex_);
  StackOptions options = asked;
  if (!enough_trials()) {
    options.mode = serial_.size() <= overlapped_.size() ? Mode::reprop : Mode::pareprop;
    return options;
  }
  options.mode = best(overlapped_) < best(serial_) ? Mode::pareprop : Mode::reprop;
  if (!options.policies.empty() || block_tape_bytes_ <= 0) return options;
  const std::int64_t budget =
      asked.tape_budget > 0 ? asked.tape_budget : memory::free_memory() / 4 * 3;
  const auto stored = std::min<std::int64_t>(depth, budget / block_tape_bytes_);
  if (stored == depth) {
    // Nothing to recover: lanes would only take threads from one another.
    options.mode = Mode::stored;
    return options;
  }
  options.policies.assign(static_cast<std::size_t>(depth), Policy::reverse);
  // The topmost: their tapes are the first to be used up.
  std::fill_n(options.policies.rbegin(), stored, Policy::store);
  return options;
}

void AutoTuner::observe(const StackOptions& used, double seconds, std::int64_t block_tape_bytes) {
  std::lock_guard lock(mutex_);
  if (enough_trials()) return;
  (used.mode == Mode::pareprop ? overlapped_ : serial_).push_back(seconds);
  block_tape_bytes_ = std::max(block_tape_bytes_, block_tape_bytes);
}

}  // namespace pareprop
