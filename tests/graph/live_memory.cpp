#include "tests/graph/live_memory.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "tests/graph/ancestors.h"

namespace pareprop {
namespace {

void check_bytes(const KeepPlan& plan, const std::vector<BranchBytes>& bytes) {
  if (bytes.size() != plan.branches.size()) {
    throw std::invalid_argument("live memory: the plan has " +
                                std::to_string(plan.branches.size()) + " branches, but bytes of " +
                                std::to_string(bytes.size()) + " were given: expected one each");
  }
  for (const BranchBytes& branch : bytes) {
    if (branch.tape < 0 || branch.value < 0 || branch.workspace < 0) {
      throw std::invalid_argument("live memory: bytes of a branch are negative");
    }
  }
}

// recover(k) makes u[k], not only the tape.
bool makes_value(const BranchKeep& keep) { return keep.wants_value && !keep.value; }

struct Sums {
  std::int64_t tape = 0;
  std::int64_t total = 0;
  int recovered = 0;
};

void raise(LivePeak& peak, const Sums& sums) {
  peak.tape_bytes = std::max(peak.tape_bytes, sums.tape);
  peak.total_bytes = std::max(peak.total_bytes, sums.total);
  peak.recovered_tapes = std::max(peak.recovered_tapes, sums.recovered);
}

}  // namespace

// Task ids of one stack by branch, -1: none.
struct LiveMemory::Tasks {
  std::vector<int> recover, gradient, weight_gradient;

  Tasks(const TaskGraph& graph, int stack, std::size_t branches)
      : recover(branches, -1), gradient(branches, -1), weight_gradient(branches, -1) {
    for (int id = 0; id < graph.size(); ++id) {
      const Task& task = graph[id];
      if (task.stack != stack) continue;
      if (static_cast<std::size_t>(task.branch) >= branches) {
        throw std::invalid_argument("live memory: the graph has '" + label(task) +
                                    "', but the plan of that stack has only " +
                                    std::to_string(branches) +
                                    " branches: give the plan that the graph was made from");
      }
      auto& of = task.kind == TaskKind::recover    ? recover
                 : task.kind == TaskKind::gradient ? gradient
                                                   : weight_gradient;
      of[static_cast<std::size_t>(task.branch)] = id;
    }
  }

  int recover_of(int k) const { return recover[static_cast<std::size_t>(k)]; }

  std::vector<int> uses_of_tape(int k) const {
    const auto at = static_cast<std::size_t>(k);
    std::vector<int> uses = {gradient[at]};
    if (weight_gradient[at] >= 0) uses.push_back(weight_gradient[at]);
    return uses;
  }
};

LiveMemory::LiveMemory(const TaskGraph& graph, const KeepPlan& plan,
                       const std::vector<BranchBytes>& bytes)
    : LiveMemory(graph, plan, bytes, KeepPlan{}, {}) {}

LiveMemory::LiveMemory(const TaskGraph& graph, const KeepPlan& plan,
                       const std::vector<BranchBytes>& bytes, const KeepPlan& below,
                       const std::vector<BranchBytes>& below_bytes)
    : graph_(graph) {
  check_bytes(plan, bytes);
  check_bytes(below, below_bytes);
  add_stack(Tasks(graph, 0, bytes.size()), plan, bytes);
  add_below(Tasks(graph, 1, below_bytes.size()), below, below_bytes);
}

void LiveMemory::add_stack(const Tasks& tasks, const KeepPlan& plan,
                           const std::vector<BranchBytes>& bytes) {
  const int count = static_cast<int>(bytes.size());
  for (int k = plan.first; k < count; ++k) {
    const auto at = static_cast<std::size_t>(k);
    if (tasks.gradient[at] < 0) {
      throw std::invalid_argument("live memory: the graph has no gradient of branch " +
                                  std::to_string(k) + ": expected one for each of the plan's " +
                                  std::to_string(count) + " branches");
    }
    const bool kept = plan.branches[at].tape;
    items_.push_back({.bytes = bytes[at].tape,
                      .is_tape = true,
                      .recovered = !kept,
                      .made_by = kept ? -1 : tasks.recover[at],
                      .released_by = tasks.uses_of_tape(k)});
    items_.push_back({.bytes = bytes[at].workspace,
                      .made_by = tasks.gradient[at],
                      .released_by = tasks.uses_of_tape(k)});
  }
  if (count == 0 || !is_reversible(plan.coupling)) return;
  for (int k = 0; k < count + 2; ++k) add_value(tasks, plan, bytes, k);
}

void LiveMemory::add_value(const Tasks& tasks, const KeepPlan& plan,
                           const std::vector<BranchBytes>& bytes, int k) {
  const int count = static_cast<int>(bytes.size());
  auto keep = [&](int branch) -> const BranchKeep& {
    return plan.branches[static_cast<std::size_t>(branch)];
  };
  const int sized_as = k < count ? k : k - 2;
  Item item{.bytes = bytes[static_cast<std::size_t>(sized_as)].value, .released_by = {}};

  bool exists = k >= 1 && k <= count && keep(k - 1).tape;
  if (k < count) {
    exists = exists || keep(k).value || makes_value(keep(k));
    if (makes_value(keep(k))) item.made_by = tasks.recover_of(k);
  } else {
    exists = exists || (k == count ? plan.wants_y1 : plan.wants_y2);
  }
  if (!exists) return;

  const bool measures_drift = k <= 1 && keep(0).wants_value;
  if (!measures_drift) {
    if (k >= 1 && k <= count) item.released_by = tasks.uses_of_tape(k - 1);
    if (k >= 2 && tasks.recover_of(k - 2) >= 0) {
      item.released_by.push_back(tasks.recover_of(k - 2));
    }
    // All that read it ran in advance.
    if (item.released_by.empty()) return;
  }
  items_.push_back(std::move(item));
}

void LiveMemory::add_below(const Tasks& tasks, const KeepPlan& plan,
                           const std::vector<BranchBytes>& bytes) {
  for (std::size_t k = 0; k < bytes.size(); ++k) {
    if (tasks.recover[k] < 0) continue;
    items_.push_back({.bytes = bytes[k].tape,
                      .is_tape = true,
                      .recovered = true,
                      .made_by = tasks.recover[k],
                      .released_by = {}});
    if (is_reversible(plan.coupling) && makes_value(plan.branches[k])) {
      items_.push_back({.bytes = bytes[k].value, .made_by = tasks.recover[k], .released_by = {}});
    }
  }
}

LivePeak LiveMemory::along(const Timeline& timeline) const {
  check_timeline(graph_, timeline);
  // One order of all beginnings and ends. At equal times memory is released before it is taken, and
  // tasks that took no time come in between, each whole, in the order of the graph: so whatever a
  // task waits for ends before it.
  enum Phase { kEnd, kInstant, kBegin };
  using Event = std::tuple<double, Phase, int, bool>;
  std::vector<Event> events;
  events.reserve(2 * timeline.spans.size());
  for (const Span& span : timeline.spans) {
    const bool instant = span.end == span.begin;
    events.emplace_back(span.begin, instant ? kInstant : kBegin, span.task, false);
    events.emplace_back(span.end, instant ? kInstant : kEnd, span.task, true);
  }
  std::sort(events.begin(), events.end());

  const auto tasks = static_cast<std::size_t>(graph_.size());
  std::vector<std::size_t> begins(tasks), ends(tasks);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto& [time, phase, task, is_end] = events[i];
    (is_end ? ends : begins)[static_cast<std::size_t>(task)] = i + 1;  // 0 is the start
  }

  std::vector<Sums> change(events.size() + 1);
  auto add = [&](std::size_t at, const Item& item, int sign) {
    change[at].total += sign * item.bytes;
    if (item.is_tape) change[at].tape += sign * item.bytes;
    if (item.recovered) change[at].recovered += sign;
  };
  for (const Item& item : items_) {
    add(item.made_by < 0 ? 0 : begins[static_cast<std::size_t>(item.made_by)], item, +1);
    std::size_t released = 0;
    for (int task : item.released_by) {
      released = std::max(released, ends[static_cast<std::size_t>(task)]);
    }
    if (!item.released_by.empty()) add(released, item, -1);
  }

  LivePeak peak;
  Sums live;
  for (const Sums& step : change) {
    live.tape += step.tape;
    live.total += step.total;
    live.recovered += step.recovered;
    raise(peak, live);
  }
  return peak;
}

LivePeak LiveMemory::worst_case() const {
  const auto tasks = static_cast<std::size_t>(graph_.size());
  std::vector<std::vector<bool>> before(tasks);
  std::vector<bool> makes(tasks, false), makes_tape(tasks, false);
  for (std::size_t id = 0; id < tasks; ++id)
    before[id] = testing::ancestors(graph_, static_cast<int>(id));
  for (const Item& item : items_) {
    if (item.made_by < 0) continue;
    makes[static_cast<std::size_t>(item.made_by)] = true;
    if (item.is_tape) makes_tape[static_cast<std::size_t>(item.made_by)] = true;
  }

  // A sum is highest at the start or where something that counts in it was just made. There may be
  // alive what is not made after that moment and not certainly released before it.
  auto may_be_alive = [&](const Item& item, int moment) {
    if (moment < 0) return item.made_by < 0;
    const auto now = static_cast<std::size_t>(moment);
    if (item.made_by >= 0 && before[static_cast<std::size_t>(item.made_by)][now]) return false;
    return item.released_by.empty() ||
           !std::all_of(item.released_by.begin(), item.released_by.end(),
                        [&](int task) { return before[now][static_cast<std::size_t>(task)]; });
  };

  LivePeak peak;
  for (int moment = -1; moment < graph_.size(); ++moment) {
    const bool start = moment < 0;
    const auto at = static_cast<std::size_t>(moment);
    if (!start && !makes[at]) continue;
    Sums sums;
    for (const Item& item : items_) {
      if (!may_be_alive(item, moment)) continue;
      sums.total += item.bytes;
      if (!start && !makes_tape[at]) continue;
      if (item.is_tape) sums.tape += item.bytes;
      if (item.recovered) ++sums.recovered;
    }
    raise(peak, sums);
  }
  return peak;
}

}  // namespace pareprop
