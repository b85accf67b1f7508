#pragma once

#include <memory>
#include <vector>

#include "pareprop/graph/task_graph.h"
#include "pareprop/lanes/executor.h"

namespace pareprop {

// Note [Memory between lanes]
// An allocator gives memory that is freed to the next tensor of the stream that allocated it, at
// once: the host is far ahead of the streams. So memory that one lane allocated and another reads
// must not be freed before the first is ordered after the second. Telling the allocator of each
// reader (record_stream) would do, but it then keeps the memory until the host knows that the
// reader is done, which may be never within a pass. The edges of the graph order the lanes anyway:
// bodies hand memory back (Executor::hand_back), and it goes with the first edge that makes it
// safe. What is left at the end of a run goes then: lane 0, the caller's, is after all others, and
// these are used next by another run, which begins after its caller.

// Knows, while the tasks of a graph are issued in its order to lanes that run them later, which
// lane is ordered after which task, and keeps what bodies hand back until it may go. It goes, at
// the latest, with this object.
class LaneOrder {
 public:
  explicit LaneOrder(const TaskGraph& graph);

  // The task is issued next. Returns the tasks, of other lanes, that its lane has to wait for: not
  // those that it is ordered after already.
  std::vector<int> begin(int task);
  void end(int task);

  // See Executor::hand_back. By the task that was begun last.
  void hand_back(std::shared_ptr<const void> memory, int owner);

  // Whether a task of another lane needs it.
  bool needed_elsewhere(int task) const {
    return needed_elsewhere_[static_cast<std::size_t>(task)];
  }
  bool has_begun(int lane) const { return last_[static_cast<std::size_t>(lane)] >= 0; }
  // The lanes that lane 0 has to wait for to come after all that was begun: some stand for others.
  std::vector<int> lanes_to_join() const;

 private:
  using Seen = std::vector<int>;  // by lane: the last task that something is ordered after

  static void see(Seen& seen, const Seen& more);
  void free_what_is_safe();

  struct HandedBack {
    int task, lane, owner;
    std::shared_ptr<const void> memory;
  };

  const TaskGraph& graph_;
  int now_ = -1;                        // the task that was begun last
  std::vector<bool> needed_elsewhere_;  // by task: needed on another lane
  std::vector<int> last_;               // by lane: the last task that was begun
  std::vector<int> left_;               // by lane: tasks that have not ended
  std::vector<Seen> seen_;              // by lane, its own tasks included
  std::vector<Seen> seen_by_task_;      // when it had ended; empty: no other lane needs it
  std::vector<HandedBack> handed_back_;
};

}  // namespace pareprop
