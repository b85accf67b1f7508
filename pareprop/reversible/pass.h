#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pareprop/ops/random_stream.h"

namespace pareprop {

class DeferredChecks;
class GradientTaker;
class StackCall;

// One forward pass of a model through its stacks. It holds the seed and the step for randomness,
// and lets the backward pass of a stack begin the recovery of the stack below early. Thread-safe.
class Pass {
 public:
  // `checks`: who reads what the stacks have to check of a pass on an accelerator (Note [Reads
  // after the step]), and when. Null: each stack at the end of its backward pass, or of its forward
  // pass where there is none to come; it is waited for then. On the CPU stacks check at once,
  // always. `taker`: who gets the gradients of blocks in the middle of backward passes; null: they
  // are left to autograd. `backward_passes`: how often Network::step() runs back; all but the last
  // keep the graph. `part`: of which samples of a batch it is (Note [Randomness of parts]).
  Pass(std::uint64_t seed, std::uint64_t step, std::shared_ptr<DeferredChecks> checks = nullptr,
       std::shared_ptr<GradientTaker> taker = nullptr, int backward_passes = 1, BatchPart part = {})
      : seed_(seed),
        step_(step),
        checks_(std::move(checks)),
        taker_(std::move(taker)),
        backward_passes_(backward_passes),
        part_(part) {}

  std::uint64_t seed() const { return seed_; }
  std::uint64_t step() const { return step_; }
  const std::shared_ptr<DeferredChecks>& checks() const { return checks_; }
  const std::shared_ptr<GradientTaker>& taker() const { return taker_; }
  int backward_passes() const { return backward_passes_; }
  const BatchPart& part() const { return part_; }

  // The key of what is drawn at a place of the network in this pass.
  RandomKey random_key(std::initializer_list<std::uint64_t> place) const;

  // Returns the position of a new call in the pass: 0, 1, 2, ... from input to output.
  int enter(const std::shared_ptr<StackCall>& call);

  // The call at `position`, or nullptr if it was destroyed.
  std::shared_ptr<StackCall> call(int position) const;

 private:
  const std::uint64_t seed_;
  const std::uint64_t step_;
  const std::shared_ptr<DeferredChecks> checks_;
  const std::shared_ptr<GradientTaker> taker_;
  const int backward_passes_;
  const BatchPart part_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<StackCall>> calls_;  // guarded by mutex_
};

}  // namespace pareprop
