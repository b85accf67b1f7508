#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pareprop {

class StackCall;

// One forward pass of a model through its stacks: what they draw their randomness from, and how the
// backward pass of one finds the next one below, to begin its recovery early. Thread-safe.
class Pass {
 public:
  Pass(std::uint64_t seed, std::uint64_t step) : seed_(seed), step_(step) {}

  std::uint64_t seed() const { return seed_; }
  std::uint64_t step() const { return step_; }

  // The position of a new call in the pass: 0, 1, 2, ... from the input of the model on.
  int enter(const std::shared_ptr<StackCall>& call);

  // The call at `position`, or nullptr when it is gone.
  std::shared_ptr<StackCall> call(int position) const;

 private:
  const std::uint64_t seed_;
  const std::uint64_t step_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<StackCall>> calls_;  // guarded by mutex_
};

}  // namespace pareprop
