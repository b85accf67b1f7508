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

// The final gradients of one block: nothing will be added to them. The backward pass returns these
// tensors, so a change in place (an all-reduce) changes what the parameters get.
struct BlockGradients {
  int block = 0;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  // one for each parameter
};

// The callbacks of a watch; null functions are not called. If one throws, the pass ends with this
// error; the stack can be used again.
struct StackObserver {
  // For each block, from the last to the first, as soon as its gradients are final, while lower
  // blocks are still being recovered. Runs on the thread of a lane: keep it short, and do not use
  // the stack. On an accelerator the current stream comes after all work that made the gradients,
  // and after that of earlier calls of the pass.
  std::function<void(const BlockGradients&)> on_block_gradients = nullptr;
  // At the end of each forward pass, with the times of each branch: the task of a span is a branch.
  // On an accelerator these are the times at which it worked, so they are told of when the checks
  // of the pass run (Note [Reads after the step]): at the end of the backward pass, or later.
  std::function<void(const Timeline&)> on_forward = nullptr;
  // At the end of each backward pass, with its tasks and their times; on an accelerator as above.
  std::function<void(const TaskGraph&, const Timeline&)> on_backward = nullptr;
  // Before and after each branch of a forward pass and each task of a backward pass. Runs on the
  // thread of the lane.
  std::function<void()> on_task = nullptr;
};

// An error of a callback that derives from this too passes through as it is: an exception of
// another language, say. Other errors get a sentence that says which callback they came from.
class PassedOn {
 public:
  virtual ~PassedOn() = default;
};

class ObserverList;

// Its destructor ends the watch. A pass that runs in another thread at that time may still call the
// observer. It may outlive the stack.
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

// The observers of a stack at one moment. As an Observer of an executor it passes on the tasks.
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

// The observers of one stack, shared with its calls and its watches. Thread-safe.
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
