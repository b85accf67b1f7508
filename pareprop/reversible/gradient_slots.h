#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pareprop/reversible/stack_observer.h"

namespace pareprop {

// Collects the gradients of parameters and extra arguments. One that several branches use is summed
// in the order of branches from the top, whatever lane comes first: the same bits every time.
// Thread-safe.
class GradientSlots {
 public:
  struct Slot {
    at::Tensor leaf;
    std::string name;        // for messages: "block 3, branch F: parameter 'qkv.weight'"
    bool parameter = true;   // else an extra argument
    std::vector<int> users;  // branches, from the top down
  };

  // `done_with` gets what was added to a sum and is not needed any more; null: it goes at once.
  GradientSlots(std::vector<Slot> slots, int branches,
                std::function<void(const BlockGradients&)> on_block,
                std::function<void(at::Tensor)> done_with = nullptr);

  // All that branch `k` gives: gradients[i] (or undefined) for slot ids[i]. Once a branch.
  void deliver(int k, const std::vector<int>& ids, std::vector<at::Tensor> gradients);

  // The slots of parameters whose sums are whole with this block and the ones above, from the first
  // on. REQUIRES: the branches of this block and of those above delivered.
  std::vector<std::size_t> whole_with(int block) const;
  // The sum of a slot that is whole; take() leaves it out then. Undefined: it got nothing.
  at::Tensor take(std::size_t id);

  // The sums, one a slot. REQUIRES: every branch delivered.
  std::vector<at::Tensor> take();

 private:
  void fold(std::size_t id);
  void finish_blocks();

  const std::vector<Slot> slots_;
  const std::function<void(const BlockGradients&)> on_block_;
  const std::function<void(at::Tensor)> done_with_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<at::Tensor> sums_;
  std::vector<std::size_t> folded_;                 // users of a slot that are in its sum
  std::vector<std::map<int, at::Tensor>> waiting_;  // gradients whose turn has not come, by branch
  std::vector<bool> delivered_;
  int next_block_;
};

}  // namespace pareprop
