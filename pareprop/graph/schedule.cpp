#include "pareprop/graph/schedule.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace pareprop {
namespace {

// Walks the branches from the top and adds the tasks of Note [The backward schedule].
class Builder {
 public:
  Builder(const KeepPlan& plan, const ScheduleOptions& options, int ready)
      : plan_(plan),
        options_(options),
        steps_(plan.steps()),
        lookahead_(is_reversible(plan.coupling) ? options.lookahead
                                                : std::max(1, options.lookahead)),
        ready_(ready) {
    const auto steps = static_cast<std::size_t>(steps_);
    recover_.assign(steps, -1);
    gradient_.assign(steps, -1);
    weight_gradient_.assign(steps, -1);
    update_.assign(static_cast<std::size_t>(plan.depth()), -1);
  }

  TaskGraph build(const KeepPlan* below) {
    const int ahead = options_.overlap ? lookahead_ : 0;
    int recovered = 0, recovered_below = 0;
    for (int s = 0; s < steps_; ++s) {
      // Recovery is added as early as its edges allow, so that its lane is never held up by order.
      const int last = std::max(s + ahead, recover_position(branch(s)));
      for (; recovered < steps_ && recovered <= last; ++recovered) add_recover(recovered);
      if (below != nullptr && options_.overlap) {
        for (; recovered_below <= s + ahead - steps_; ++recovered_below) {
          add_recover_below(*below, recovered_below);
        }
      }
      add_gradient(s);
      if (deferred()) add_weight_gradient(s);
      if (options_.updates && branch(s) % 2 == 0) add_update(branch(s) / 2);
    }
    TaskGraph graph = any_lane() ? TaskGraph(LaneRule::any, busy_lanes()) : TaskGraph();
    for (Task& task : tasks_) graph.add(std::move(task));
    return graph;
  }

 private:
  bool deferred() const { return options_.overlap && options_.deferred > 0; }
  int branch(int s) const { return plan_.count() - 1 - s; }
  int recover_position(int k) const { return recovered_at(plan_.coupling, plan_.count(), k); }

  // With recovery on one lane and gradients on the other, one of two waited for a twelfth of the
  // time (vit_base), mostly for a weight gradient that the other had begun while its own next
  // gradient was ready.
  bool any_lane() const { return options_.overlap && options_.rule == LaneRule::any; }

  // Gradients fill one lane and recovery another; weight gradients fill a third, or those of
  // several blocks a second. One that nothing fills would take threads from the others.
  int busy_lanes() const {
    if (deferred() && steps_ > 0 && options_.lanes > 2) return options_.lanes;
    return last_recover_ >= 0 || (deferred() && plan_.depth() > 1) ? 2 : 1;
  }

  bool fixed_lanes() const { return options_.overlap && !any_lane(); }
  int lane(int k) const { return fixed_lanes() ? fixed_lane(k, lookahead_) : 0; }
  int weight_lane(int k) const { return fixed_lanes() && options_.lanes > 2 ? 2 : lane(k); }

  int add(Task task) {
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
  }

  static void need(Task& task, const std::vector<int>& of, int s) {
    if (s >= 0 && s < static_cast<int>(of.size()) && of[static_cast<std::size_t>(s)] >= 0) {
      task.needs.push_back(of[static_cast<std::size_t>(s)]);
    }
  }

  void need_last_recover(Task& task) const {
    if (last_recover_ >= 0) task.needs.push_back(last_recover_);
  }

  // A deferred weight gradient holds its branch's tape as well.
  void bound_recover(Task& task, int s) {
    if (!options_.overlap) return;
    need(task, gradient_, s - 1 - lookahead_);
    for (; bounded_ < s - lookahead_; ++bounded_) need(task, weight_gradient_, bounded_);
  }

  void add_recover(int s) {
    const int k = recovered_at(plan_.coupling, plan_.count(), s);
    if (s < ready_ || !plan_.at(k).needs_recover()) return;
    Task task{.kind = TaskKind::recover, .branch = k, .lane = lane(k)};
    need_last_recover(task);
    bound_recover(task, s);
    last_recover_ = recover_[static_cast<std::size_t>(s)] = add(std::move(task));
  }

  void add_recover_below(const KeepPlan& below, int j) {
    if (j >= below.steps()) return;
    const int k = recovered_at(below.coupling, below.count(), j);
    if (!below.at(k).needs_recover()) return;
    Task task{.kind = TaskKind::recover, .branch = k, .lane = lane(k), .stack = 1};
    need_last_recover(task);
    bound_recover(task, steps_ + j);
    last_recover_ = add(std::move(task));
  }

  void add_gradient(int s) {
    const int k = branch(s);
    Task task{.kind = TaskKind::gradient, .branch = k, .lane = lane(k)};
    need(task, recover_, recover_position(k));
    need(task, gradient_, s - 1);
    if (deferred()) need(task, weight_gradient_, s - 1 - options_.deferred);
    if (k % 2 == 1) need(task, update_, k / 2 + 2);
    gradient_[static_cast<std::size_t>(s)] = add(std::move(task));
  }

  void add_weight_gradient(int s) {
    const int k = branch(s);
    Task task{.kind = TaskKind::weight_gradient, .branch = k, .lane = weight_lane(k)};
    need(task, gradient_, s);
    if (fixed_lanes()) need(task, weight_gradient_, s - 1);
    weight_gradient_[static_cast<std::size_t>(s)] = add(std::move(task));
  }

  void add_update(int block) {
    Task task{.kind = TaskKind::update, .branch = 2 * block, .lane = weight_lane(2 * block)};
    const std::vector<int>& last = deferred() ? weight_gradient_ : gradient_;
    for (const int k : {2 * block + 1, 2 * block}) need(task, last, plan_.count() - 1 - k);
    need(task, update_, block + 1);
    update_[static_cast<std::size_t>(block)] = add(std::move(task));
  }

  const KeepPlan& plan_;
  const ScheduleOptions& options_;
  const int steps_;
  const int lookahead_;
  const int ready_;
  std::vector<Task> tasks_;
  std::vector<int> recover_, gradient_, weight_gradient_;  // task ids by step, -1: none
  std::vector<int> update_;                                // by block
  int last_recover_ = -1;
  int bounded_ = 0;  // the recover chain waits for all weight gradients of earlier steps
};

}  // namespace

TaskGraph backward_schedule(const KeepPlan& plan, const ScheduleOptions& options, int ready,
                            const KeepPlan* below) {
  if (options.lookahead < 0 || options.deferred < 0 || options.lanes < 2 || options.lanes > 3) {
    throw std::invalid_argument(
        "schedule: expected lookahead >= 0, deferred >= 0 and 2 or 3 lanes, got lookahead " +
        std::to_string(options.lookahead) + ", deferred " + std::to_string(options.deferred) +
        ", " + std::to_string(options.lanes) + " lanes");
  }
  return Builder(plan, options, ready).build(below);
}

int fixed_lane(int k, int lookahead) { return (lookahead > 1 ? k / 2 : k) % 2; }

TaskGraph forward_schedule(int branches, int lanes, int lookahead) {
  TaskGraph graph;
  for (int k = 0; k < branches; ++k) {
    Task task{.branch = k, .lane = lanes > 1 ? fixed_lane(k, lookahead) : 0};
    if (k > 0) task.needs.push_back(k - 1);
    graph.add(std::move(task));
  }
  return graph;
}

}  // namespace pareprop
