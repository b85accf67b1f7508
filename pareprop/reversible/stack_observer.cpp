#include "pareprop/reversible/stack_observer.h"

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

namespace pareprop {
namespace {

// Whose fault an error is should not be guessed from the middle of a backward pass.
template <typename Call>
void tell(const std::vector<std::shared_ptr<const StackObserver>>& all, const char* function,
          const Call& call) {
  for (const auto& one : all) {
    try {
      call(*one);
    } catch (const c10::Error&) {
      throw;  // of torch or its device, as anywhere else in the pass
    } catch (const PassedOn&) {
      throw;
    } catch (const std::exception& error) {
      throw std::runtime_error("stack: an observer failed in " + std::string(function) + ": " +
                               error.what());
    }
  }
}

}  // namespace

Watch& Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  end();
  list_ = std::move(other.list_);
  observer_ = std::exchange(other.observer_, nullptr);
  return *this;
}

void Watch::end() {
  if (const auto list = list_.lock(); list && observer_) list->remove(observer_);
  observer_.reset();
}

void Watchers::block_gradients(const BlockGradients& block) const {
  tell(all_, "on_block_gradients", [&](const StackObserver& one) {
    if (one.on_block_gradients) one.on_block_gradients(block);
  });
}

void Watchers::forward(const Timeline& timeline) const {
  tell(all_, "on_forward", [&](const StackObserver& one) {
    if (one.on_forward) one.on_forward(timeline);
  });
}

void Watchers::backward(const TaskGraph& graph, const Timeline& timeline) const {
  tell(all_, "on_backward", [&](const StackObserver& one) {
    if (one.on_backward) one.on_backward(graph, timeline);
  });
}

void Watchers::on_begin(int /*task*/, int /*lane*/) {
  tell(all_, "on_task", [](const StackObserver& one) {
    if (one.on_task) one.on_task();
  });
}

void Watchers::on_end(int task, int lane) { on_begin(task, lane); }

Watch ObserverList::add(StackObserver observer) {
  auto entry = std::make_shared<const StackObserver>(std::move(observer));
  const std::lock_guard lock(mutex_);
  all_.push_back(entry);
  return {weak_from_this(), std::move(entry)};
}

void ObserverList::remove(const std::shared_ptr<const StackObserver>& observer) {
  const std::lock_guard lock(mutex_);
  std::erase(all_, observer);
}

Watchers ObserverList::now() const {
  const std::lock_guard lock(mutex_);
  return Watchers(all_);
}

}  // namespace pareprop
