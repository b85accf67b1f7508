#include "pareprop/lanes/stream_lanes.h"

#include <c10/core/Event.h>
#include <c10/core/Storage.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "pareprop/lanes/run_scope.h"

namespace pareprop {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

c10::impl::VirtualGuardImpl guard_of(c10::Device device) {
  if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type())) {
    throw std::invalid_argument("stream lanes: device '" + device.str() +
                                "' has no streams in this build of torch; expected an accelerator "
                                "that it supports, or use CpuLanes");
  }
  return c10::impl::VirtualGuardImpl(device.type());
}

// Events are kept from run to run: making one is a call to the driver. Recording one anew does not
// disturb the waits already issued for its earlier recording.
class Events {
 public:
  explicit Events(c10::DeviceType type) : type_(type) {}

  void reuse_all() { used_ = 0; }

  int record(const c10::Stream& stream) {
    if (used_ == events_.size()) events_.emplace_back(type_);
    events_[used_].record(stream);
    return static_cast<int>(used_++);
  }

  void block(int event, const c10::Stream& stream) const { events_[index(event)].block(stream); }

 private:
  c10::DeviceType type_;
  std::vector<c10::Event> events_;
  std::size_t used_ = 0;
};

// Issues one graph. Knows for every pair of lanes how far one is ordered after the other, so that
// no wait is issued twice.
class Issue {
 public:
  Issue(const TaskGraph& graph, const std::vector<c10::Stream>& streams, Events& events)
      : graph_(graph),
        streams_(streams),
        events_(events),
        event_of_(index(graph.size()), -1),
        needed_elsewhere_(index(graph.size()), false),
        last_(index(graph.lanes()), -1),
        waited_(index(graph.lanes()), std::vector<int>(index(graph.lanes()), -1)) {
    for (const Task& task : graph.tasks()) {
      for (const int needed : task.needs) {
        if (graph[needed].lane != task.lane) needed_elsewhere_[index(needed)] = true;
      }
    }
  }

  void run(const TaskBody& body, Observer* observer) {
    if (graph_.lanes() > 1) start_ = events_.record(streams_[0]);
    for (int id = 0; id < graph_.size(); ++id) {
      const Task& task = graph_[id];
      const c10::Stream& stream = streams_[index(task.lane)];
      const c10::StreamGuard guard(stream);
      wait_for_needs(task);
      last_[index(task.lane)] = id;
      if (observer != nullptr) observer->on_begin(id, task.lane);
      body(task);
      if (needed_elsewhere_[index(id)]) event_of_[index(id)] = events_.record(stream);
      if (observer != nullptr) observer->on_end(id, task.lane);
    }
  }

  // Orders the caller's stream after all that was issued, also after half a task.
  void join() {
    for (int lane = 1; lane < graph_.lanes(); ++lane) {
      if (waited_[0][index(lane)] == last_[index(lane)]) continue;
      events_.block(events_.record(streams_[index(lane)]), streams_[0]);
    }
  }

 private:
  void wait_for_needs(const Task& task) {
    const c10::Stream& stream = streams_[index(task.lane)];
    if (task.lane != 0 && last_[index(task.lane)] < 0) events_.block(start_, stream);

    // A lane runs in order, so of the tasks needed from one lane the last stands for all.
    std::vector<int> wanted(index(graph_.lanes()), -1);
    for (const int needed : task.needs) {
      int& last = wanted[index(graph_[needed].lane)];
      last = std::max(last, needed);
    }
    for (int lane = 0; lane < graph_.lanes(); ++lane) {
      int& waited = waited_[index(task.lane)][index(lane)];
      const int needed = wanted[index(lane)];
      if (lane == task.lane || needed <= waited) continue;
      events_.block(event_of_[index(needed)], stream);
      waited = needed;
    }
  }

  const TaskGraph& graph_;
  const std::vector<c10::Stream>& streams_;
  Events& events_;
  int start_ = -1;                        // the event that the other lanes start after
  std::vector<int> event_of_;             // by task, -1: none
  std::vector<bool> needed_elsewhere_;    // by task: needed on another lane
  std::vector<int> last_;                 // by lane: the last task that was begun
  std::vector<std::vector<int>> waited_;  // [lane][other]: the last task of `other` waited for
};

}  // namespace

struct StreamLanes::State {
  State(c10::Device device_, int lanes_)
      : guard(guard_of(device_)),
        device(device_.has_index() ? device_ : guard.getDevice()),
        lanes(lanes_),
        events(device.type()) {
    for (int lane = 1; lane < lanes; ++lane) {
      others.push_back(guard.getStreamFromGlobalPool(device));
    }
  }

  std::mutex turn;
  c10::impl::VirtualGuardImpl guard;
  c10::Device device;
  int lanes;
  std::vector<c10::Stream> others;  // the streams of lanes 1, 2, ...
  Events events;
};

StreamLanes::StreamLanes(c10::Device device, int lanes) {
  if (lanes < 1) {
    throw std::invalid_argument("stream lanes: expected at least 1 lane, got " +
                                std::to_string(lanes));
  }
  state_ = std::make_unique<State>(device, lanes);
}

StreamLanes::~StreamLanes() = default;

int StreamLanes::lanes() const { return state_->lanes; }

void StreamLanes::run(const TaskGraph& graph, const TaskBody& body, Observer* observer) {
  if (graph.rule() != LaneRule::fixed) {
    throw std::invalid_argument(
        "stream lanes: the graph leaves its tasks to whichever lane is free, which the host cannot "
        "know of a stream; build the graph with LaneRule::fixed");
  }
  if (graph.lanes() > lanes()) {
    throw std::invalid_argument("stream lanes: the graph has " + std::to_string(graph.lanes()) +
                                " lanes, this executor " + std::to_string(lanes()) +
                                "; build the graph for fewer or the executor with more");
  }
  const RunScope scope(state_.get());
  const std::lock_guard turn(state_->turn);
  std::vector<c10::Stream> streams{state_->guard.getStream(state_->device)};
  streams.insert(streams.end(), state_->others.begin(), state_->others.end());

  state_->events.reuse_all();
  Issue issue(graph, streams, state_->events);
  std::exception_ptr error;
  try {
    issue.run(body, observer);
  } catch (...) {
    error = std::current_exception();
  }
  try {
    issue.join();
  } catch (...) {
    if (error == nullptr) throw;
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void record_on_current_stream(const c10::Storage& storage) {
  if (!storage || storage.device().is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(storage.device_type());
  guard.recordDataPtrOnStream(storage.data_ptr(), guard.getStream(storage.device()));
}

}  // namespace pareprop
