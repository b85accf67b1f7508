#pragma once

#include <functional>
#include <memory>

#include "pareprop/graph/task_graph.h"

namespace pareprop {

// Sees every task begin and end, on the lane that runs it. Calls of different lanes may coincide. A
// task whose body throws does not end, and what an observer throws counts as thrown by the body.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_begin(int task, int lane) = 0;
  virtual void on_end(int task, int lane) = 0;
};

// Runs the body of one task.
using TaskBody = std::function<void(const Task&)>;

// Note [Errors cross lanes]
// The first exception that a body throws is kept. Tasks that have not begun then do not run, bodies
// that are running end, and the exception is thrown from run() on the caller's thread. The executor
// can be used again.

class Executor {
 public:
  virtual ~Executor() = default;

  // Lanes that really run side by side.
  virtual int lanes() const = 0;

  // Whether bodies only issue work that runs later, on streams of an accelerator.
  virtual bool asynchronous() const { return false; }

  // For a body: its task is the last to use this memory, which lane `owner` allocated
  // (kAnyLane: it may be any). An asynchronous executor keeps it until the owner is ordered after
  // the task, and so gives it to nothing else while it is in use. Others let it go at once.
  static constexpr int kAnyLane = -1;
  virtual void hand_back(std::shared_ptr<const void> /*memory*/, int /*owner*/) {}

  // Runs every task once, after those it needs and where the graph's LaneRule allows it, and
  // returns when all have ended (on an accelerator: have been issued). One run at a time: a second
  // caller waits, and a run from inside a task of the same executor throws std::logic_error.
  virtual void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) = 0;
};

}  // namespace pareprop
