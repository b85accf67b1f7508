#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pareprop/graph/timeline.h"
#include "pareprop/lanes/executor.h"

namespace pareprop {

// The gradients of one block, final: nothing will be added to them. They are the very tensors that
// the backward pass returns, so changing them in place (an all-reduce) changes what parameters
// receive.
struct BlockGradients {
  int block = 0;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  // one a parameter
};

// What whoever watches a stack is told; functions that are null are left out. What they throw ends
// the pass as an error of the pass; the stack can be used again.
struct StackObserver {
  // In the order of blocks, from the top, as soon as a block's gradients are final, while lower
  // blocks are still being recovered. On a lane's thread: be short, do not touch the stack.
  std::function<void(const BlockGradients&)> on_block_gradients = nullptr;
  // At the end of each forward pass, with when each branch ran: tasks of the spans are branches.
  std::function<void(const Timeline&)> on_forward = nullptr;
  // At the end of each backward pass, with what ran when.
  std::function<void(const TaskGraph&, const Timeline&)> on_backward = nullptr;
  // Before and after each branch of a forward pass and each task of a backward pass. On the thread
  // of its lane.
  std::function<void()> on_task = nullptr;
};

class ObserverList;

// Ends the watching when it goes. A pass that is under way in another thread then may still call
// the observer. Outlives the stack without harm.
class [[nodiscard]] Watch {
 public:
  Watch() = default;
  Watch(std::weak_ptr<ObserverList> list, std::shared_ptr<const StackObserver> observer)
      : list_(std::move(list)), observer_(std::move(observer)) {}
  ~Watch() { end(); }
  Watch(Watch&& other) noexcept
      : list_(std::move(other.list_)), observer_(std::exchange(other.observer_, nullptr)) {}
  Watch& operator=(Watch&& other) noexcept;

  void end();

 private:
  std::weak_ptr<ObserverList> list_;
  std::shared_ptr<const StackObserver> observer_;
};

// Those who watch a stack at one moment. As an Observer of an executor it passes tasks on.
class Watchers final : public Observer {
 public:
  Watchers() = default;
  explicit Watchers(std::vector<std::shared_ptr<const StackObserver>> all) : all_(std::move(all)) {}

  bool any(auto StackObserver::*function) const {
    for (const auto& one : all_) {
      if ((*one).*function) return true;
    }
    return false;
  }

  void block_gradients(const BlockGradients& block) const;
  void forward(const Timeline& timeline) const;
  void backward(const TaskGraph& graph, const Timeline& timeline) const;
  void on_begin(int task, int lane) override;
  void on_end(int task, int lane) override;

 private:
  std::vector<std::shared_ptr<const StackObserver>> all_;
};

// Of one stack, shared with its calls and its watches. Thread-safe.
class ObserverList : public std::enable_shared_from_this<ObserverList> {
 public:
  Watch add(StackObserver observer);
  void remove(const std::shared_ptr<const StackObserver>& observer);
  Watchers now() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const StackObserver>> all_;  // guarded by mutex_
};

}  // namespace pareprop
