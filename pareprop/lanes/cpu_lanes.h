#pragma once

#include <functional>
#include <memory>

#include "pareprop/lanes/executor.h"

namespace pareprop {

// Called on the thread of a lane around all its tasks of one run; must call `tasks` once. Lets the
// layer above set what is local to a thread (intra-op threads, gradient mode) without this one
// knowing of it. `lane` 0 is the caller's own thread.
using AroundLane = std::function<void(int lane, const std::function<void()>& tasks)>;

// Lane 0 is the caller's thread, every other lane a thread of its own that lives as long as this
// object and sleeps between runs. Thread-safe: runs of several callers follow one another.
class CpuLanes final : public Executor {
 public:
  // Throws std::runtime_error when a thread cannot be started.
  explicit CpuLanes(int lanes = 2);
  ~CpuLanes() override;

  int lanes() const override;
  // Throws std::invalid_argument when the graph has more lanes than this executor.
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

  // The same with `around` wrapped around each lane's tasks.
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer,
           const AroundLane& around);

  // For a body: calls `work`, and so does every lane that has no task meanwhile, until one call has
  // returned; so `work` takes what is left of something, bit by bit. Returns when all calls have
  // returned, and throws what one of them threw. Outside of a run it is one call.
  void share(const std::function<void()>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pareprop
