#include "pareprop/reversible/auto_tuner.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

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
  const std::int64_t budget = asked.tape_budget > 0 ? asked.tape_budget : free_memory() / 4 * 3;
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

std::int64_t free_memory() {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    std::int64_t kib = 0;
    if (!(meminfo >> kib)) break;
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") least = kib * 1024;
  }
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  std::int64_t limit = 0, used = 0;  // "max" does not parse: no limit
  if (limit_file >> limit && used_file >> used)
    least = std::min(least, std::max<std::int64_t>(0, limit - used));
  return least;
}

}  // namespace pareprop
