#include "pareprop/reversible/gradient_slots.h"

#include <utility>

#include "pareprop/memory/caching_allocator.h"

namespace pareprop {

GradientSlots::GradientSlots(std::vector<Slot> slots, int branches,
                             std::function<void(const BlockGradients&)> on_block,
                             std::function<void(at::Tensor)> done_with)
    : slots_(std::move(slots)),
      on_block_(std::move(on_block)),
      done_with_(std::move(done_with)),
      sums_(slots_.size()),
      folded_(slots_.size(), 0),
      waiting_(slots_.size()),
      delivered_(static_cast<std::size_t>(branches), false),
      next_block_(branches / 2 - 1) {}

void GradientSlots::deliver(int k, const std::vector<int>& ids, std::vector<at::Tensor> gradients) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    waiting_[id][k] = std::move(gradients[i]);
    fold(id);
  }
  delivered_[static_cast<std::size_t>(k)] = true;
  finish_blocks();
}

void GradientSlots::fold(std::size_t id) {
  const auto& users = slots_[id].users;
  while (folded_[id] < users.size()) {
    auto next = waiting_[id].find(users[folded_[id]]);
    if (next == waiting_[id].end()) return;
    at::Tensor gradient = std::move(next->second);
    waiting_[id].erase(next);
    ++folded_[id];
    if (!gradient.defined()) continue;
    at::Tensor& sum = sums_[id];
    if (!sum.defined()) {
      sum = std::move(gradient);
      memory::retag(sum.storage().data_ptr(), memory::Tag::gradients);
    } else {
      const at::Tensor before =
          std::exchange(sum, sole_owner(sum) ? sum.add_(gradient) : sum.add(gradient));
      if (!done_with_) continue;
      if (!before.is_same(sum)) done_with_(before);
      done_with_(gradient);
    }
  }
}

void GradientSlots::finish_blocks() {
  for (; next_block_ >= 0; --next_block_) {
    const auto f = static_cast<std::size_t>(2 * next_block_);
    if (!delivered_[f] || !delivered_[f + 1]) return;
    if (!on_block_) continue;
    BlockGradients block{.block = next_block_, .parameters = {}, .gradients = {}};
    for (const std::size_t id : whole_with(next_block_)) {
      if (!sums_[id].defined()) continue;
      block.parameters.push_back(slots_[id].leaf);
      block.gradients.push_back(sums_[id]);
    }
    on_block_(block);
  }
}

std::vector<std::size_t> GradientSlots::whole_with(int block) const {
  std::vector<std::size_t> whole;
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    if (slots_[id].parameter && slots_[id].users.back() / 2 == block) whole.push_back(id);
  }
  return whole;
}

at::Tensor GradientSlots::take(std::size_t id) {
  std::lock_guard lock(mutex_);
  return std::exchange(sums_[id], at::Tensor());
}

std::vector<at::Tensor> GradientSlots::take() {
  std::lock_guard lock(mutex_);
  return std::move(sums_);
}

}  // namespace pareprop
