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

// Work of one lane's task that others may help with. Lives on that lane's stack. Guarded by the
// executor's mutex.
struct Offer {
  explicit Offer(const std::function<void()>& work_) : work(work_) {}

  const std::function<void()>& work;
  int helpers = 0;  // lanes that are at it
  std::exception_ptr error;
  std::condition_variable left;  // a helper has gone
};

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
        left(graph_.size()),
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
  int left;  // tasks that have not ended
  WaitingTasks waiting;
  std::vector<Offer*> offers;  // that are not used up
  std::exception_ptr error;    // the first one
  int working = 0;             // lanes other than the caller's that are still at it
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
      for (Next next; (next = wait_for_next(run, lane)).any();) {
        if (next.offer != nullptr) {
          help(run, *next.offer);
        } else {
          run_task(run, lane, next.task);
        }
      }
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
    --run.left;
    wake_all();
  }

  // Few lanes, and a task takes milliseconds: whom it concerns finds out by itself.
  void wake_all() {
    for (Lane& lane : lanes) lane.wake.notify_one();
  }

  struct Next {
    int task = WaitingTasks::kNone;
    Offer* offer = nullptr;
    bool any() const { return task != WaitingTasks::kNone || offer != nullptr; }
  };

  // Waits for a task that the lane can begin, or another lane's that it can help with. Nothing once
  // all have ended, or the run has failed.
  Next wait_for_next(Run& run, int lane) {
    std::unique_lock lock(mutex);
    Next next;
    at(lane).wake.wait(lock, [&] {
      if (run.error != nullptr || run.left == 0) return true;
      next.task = run.waiting.take(lane, [&run](int id) { return run.ready(id); });
      if (next.task == WaitingTasks::kNone && !run.offers.empty()) {
        next.offer = run.offers.front();
        ++next.offer->helpers;
      }
      return next.any();
    });
    return next;
  }

  // One call that has returned leaves nothing to others.
  void use_up(Run& run, Offer& offer) { std::erase(run.offers, &offer); }

  void help(Run& run, Offer& offer) {
    std::exception_ptr error;
    try {
      offer.work();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (error != nullptr && offer.error == nullptr) offer.error = std::move(error);
    use_up(run, offer);
    --offer.helpers;
    offer.left.notify_one();
  }

  void share(const std::function<void()>& work) {
    std::unique_lock lock(mutex);
    Run* const run = current;
    if (run == nullptr || lanes.size() == 1) {
      lock.unlock();
      return work();
    }
    Offer offer(work);
    run->offers.push_back(&offer);
    wake_all();
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    use_up(*run, offer);
    offer.left.wait(lock, [&] { return offer.helpers == 0; });
    if (error == nullptr) error = offer.error;
    lock.unlock();
    if (error != nullptr) std::rethrow_exception(error);
  }

  void fail(Run& run, std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (run.error == nullptr) run.error = std::move(error);
    wake_all();
  }

  // Lanes without a task sleep on.
  void run_all(Run& run) {
    const bool caller_has_tasks = !run.waiting.empty(0);
    {
      const std::lock_guard lock(mutex);
      current = &run;
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
    current = nullptr;
  }

  std::mutex turn;   // held by the caller whose run it is
  std::mutex mutex;  // guards everything below, and what changes in a run
  bool stop = false;
  Run* current = nullptr;
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

void CpuLanes::share(const std::function<void()>& work) { state_->share(work); }

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
