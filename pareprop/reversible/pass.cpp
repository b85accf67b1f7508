#include "pareprop/reversible/pass.h"

namespace pareprop {

RandomKey Pass::random_key(std::initializer_list<std::uint64_t> place) const {
  return {pareprop::random_key(pareprop::random_key({seed_, step_}), place), part_};
}

int Pass::enter(const std::shared_ptr<StackCall>& call) {
  std::lock_guard lock(mutex_);
  calls_.push_back(call);
  return static_cast<int>(calls_.size()) - 1;
}

std::shared_ptr<StackCall> Pass::call(int position) const {
  std::lock_guard lock(mutex_);
  if (position < 0 || position >= static_cast<int>(calls_.size())) return nullptr;
  return calls_[static_cast<std::size_t>(position)].lock();
}

}  // namespace pareprop
