#include "pareprop/lanes/cpu_lanes.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "pareprop/graph/waiting_tasks.h"
#include "pareprop/lanes/run_scope.h"

namespace pareprop {
namespace {

// One run of a graph. Lives on the caller's stack: run() returns only when no lane uses it.
struct Run {
  Run(const TaskGraph& graph_, const TaskBody& body_, Observer* observer_,
      const AroundLane& around_, const RunScope& scope_)
      : graph(graph_),
        body(body_),
        observer(observer_),
        around(around_),
        scope(scope_),
        ended(static_cast<std::size_t>(graph_.size()), false),
        waiting(graph_) {}

  bool ready(int id) const {
    const auto& needs = graph[id].needs;
    return std::all_of(needs.begin(), needs.end(),
                       [&](int needed) { return ended[static_cast<std::size_t>(needed)]; });
  }

  const TaskGraph& graph;
  const TaskBody& body;
  Observer* const observer;
  const AroundLane& around;
  const RunScope& scope;

  std::vector<bool> ended;
  WaitingTasks waiting;
  std::exception_ptr error;  // the first one
  int working = 0;           // lanes other than the caller's that are still at it
};

}  // namespace

// One mutex for all: a task takes milliseconds, a hand-over under the lock a microsecond. It also
// orders memory: what a task wrote before it was marked ended is seen by all that need it.
struct CpuLanes::State {
  struct Lane {
    std::thread thread;
    std::condition_variable wake;
    Run* run = nullptr;  // what the thread shall work on
  };

  explicit State(int lanes_) : lanes(static_cast<std::size_t>(lanes_)) {}

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    for (Lane& lane : lanes) {
      lane.wake.notify_one();
      if (lane.thread.joinable()) lane.thread.join();
    }
  }

  // Apart from the constructor, so that the destructor joins what was started when it throws.
  void start() {
    for (int lane = 1; lane < static_cast<int>(lanes.size()); ++lane) {
      try {
        at(lane).thread = std::thread([this, lane] { work(lane); });
      } catch (const std::system_error& error) {
        throw std::runtime_error(
            "cpu lanes: the thread of lane " + std::to_string(lane) + " could not be started (" +
            error.what() +
            "): the limit of threads (ulimit -u) or of memory (ulimit -v) may be "
            "reached; mode reprop needs no such threads");
      }
    }
  }

  Lane& at(int lane) { return lanes[static_cast<std::size_t>(lane)]; }

  void work(int lane) {
    Lane& own = at(lane);
    std::unique_lock lock(mutex);
    while (true) {
      own.wake.wait(lock, [&] { return stop || own.run != nullptr; });
      if (own.run == nullptr) return;
      Run& run = *own.run;
      lock.unlock();
      {
        const LaneScope scope(run.scope);
        run_lane(run, lane);
      }
      lock.lock();
      own.run = nullptr;
      if (--run.working == 0) at(0).wake.notify_one();
    }
  }

  void run_lane(Run& run, int lane) {
    int calls = 0;
    const auto tasks = [&] {
      if (++calls == 1) run_tasks(run, lane);
    };
    try {
      if (run.around) {
        run.around(lane, tasks);
      } else {
        tasks();
      }
      if (calls != 1) {
        throw std::logic_error("cpu lanes: the function around lane " + std::to_string(lane) +
                               " called its tasks " + std::to_string(calls) +
                               " times; expected once");
      }
    } catch (...) {
      fail(run, std::current_exception());
    }
  }

  // Errors go straight into the run, past whatever `around` does with exceptions.
  void run_tasks(Run& run, int lane) {
    try {
      for (int id; (id = next_task(run, lane)) != WaitingTasks::kNone;) run_task(run, lane, id);
    } catch (...) {
      fail(run, std::current_exception());
    }
  }

  void run_task(Run& run, int lane, int id) {
    if (run.observer != nullptr) run.observer->on_begin(id, lane);
    run.body(run.graph[id]);
    if (run.observer != nullptr) run.observer->on_end(id, lane);
    const std::lock_guard lock(mutex);
    run.ended[static_cast<std::size_t>(id)] = true;
    // Few lanes, and a task takes milliseconds: whom it concerns finds out by itself.
    for (Lane& other : lanes) other.wake.notify_one();
  }

  // Waits for a task that the lane can begin. WaitingTasks::kNone when none is left for it, or the
  // run has failed.
  int next_task(Run& run, int lane) {
    std::unique_lock lock(mutex);
    int taken = WaitingTasks::kNone;
    at(lane).wake.wait(lock, [&] {
      if (run.error != nullptr || run.waiting.empty(lane)) return true;
      taken = run.waiting.take(lane, [&run](int id) { return run.ready(id); });
      return taken != WaitingTasks::kNone;
    });
    return taken;
  }

  void fail(Run& run, std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (run.error == nullptr) run.error = std::move(error);
    for (Lane& lane : lanes) lane.wake.notify_one();
  }

  // Lanes without a task sleep on.
  void run_all(Run& run) {
    const bool caller_has_tasks = !run.waiting.empty(0);
    {
      const std::lock_guard lock(mutex);
      for (int lane = 1; lane < run.graph.lanes(); ++lane) {
        if (run.waiting.empty(lane)) continue;
        at(lane).run = &run;
        at(lane).wake.notify_one();
        ++run.working;
      }
    }
    if (caller_has_tasks) run_lane(run, 0);
    std::unique_lock lock(mutex);
    at(0).wake.wait(lock, [&] { return run.working == 0; });
  }

  std::mutex turn;   // held by the caller whose run it is
  std::mutex mutex;  // guards everything below, and what changes in a run
  bool stop = false;
  std::vector<Lane> lanes;  // lane 0 has no thread: it is whoever calls
};

CpuLanes::CpuLanes(int lanes) {
  if (lanes < 1) {
    throw std::invalid_argument("cpu lanes: expected at least 1 lane, got " +
                                std::to_string(lanes));
  }
  state_ = std::make_unique<State>(lanes);
  state_->start();
}

CpuLanes::~CpuLanes() = default;

int CpuLanes::lanes() const { return static_cast<int>(state_->lanes.size()); }

void CpuLanes::run(const TaskGraph& graph, const TaskBody& body, Observer* observer) {
  run(graph, body, observer, AroundLane());
}

void CpuLanes::run(const TaskGraph& graph, const TaskBody& body, Observer* observer,
                   const AroundLane& around) {
  if (graph.lanes() > lanes()) {
    throw std::invalid_argument("cpu lanes: the graph has " + std::to_string(graph.lanes()) +
                                " lanes, but this executor has " + std::to_string(lanes()) +
                                "; build the graph for fewer or the executor with more");
  }
  const RunScope scope(state_.get());
  const std::lock_guard turn(state_->turn);
  Run run(graph, body, observer, around, scope);
  state_->run_all(run);
  if (run.error != nullptr) std::rethrow_exception(run.error);
}

}  // namespace pareprop
