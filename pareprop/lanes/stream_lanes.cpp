#include "pareprop/lanes/stream_lanes.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/lanes/lane_order.h"
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
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (std::max<int>(device.index(), 0) >= guard.deviceCount()) {
    throw std::invalid_argument(
        "stream lanes: there is no device '" + device.str() +
        "'; devices of that kind on this machine: " + std::to_string(guard.deviceCount()));
  }
  return guard;
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

// Issues one graph.
class Issue {
 public:
  Issue(const TaskGraph& graph, std::vector<c10::Stream> streams, Events& events)
      : graph_(graph),
        streams_(std::move(streams)),
        events_(events),
        event_of_(index(graph.size()), -1),
        order_(graph) {}

  // Lanes begin after these.
  struct Start {
    c10::Stream stream;
    int event;
  };
  void run(const std::vector<Start>& starts, const TaskBody& body, Observer* observer) {
    for (int id = 0; id < graph_.size(); ++id) {
      const Task& task = graph_[id];
      const c10::Stream& stream = streams_[index(task.lane)];
      const c10::StreamGuard guard(stream);
      const bool first = !order_.has_begun(task.lane);
      const std::vector<int> waits = order_.begin(id);
      for (const int needed : waits) events_.block(event_of_[index(needed)], stream);
      // The first task of a lane comes after the caller itself, or after another lane that does.
      if (first && waits.empty()) {
        for (const Start& start : starts) {
          if (start.stream != stream) events_.block(start.event, stream);
        }
      }
      if (observer != nullptr) observer->on_begin(id, task.lane);
      body(task);
      order_.end(id);
      if (order_.needed_elsewhere(id)) event_of_[index(id)] = events_.record(stream);
      if (observer != nullptr) observer->on_end(id, task.lane);
    }
  }

  // Orders the caller's stream after all that was issued, also after half a task.
  void join() {
    for (const int lane : order_.lanes_to_join()) {
      events_.block(events_.record(streams_[index(lane)]), streams_.front());
    }
  }

  void hand_back(std::shared_ptr<const void> memory, int owner) {
    order_.hand_back(std::move(memory), owner);
  }

 private:
  const TaskGraph& graph_;
  const std::vector<c10::Stream> streams_;  // by lane
  Events& events_;
  std::vector<int> event_of_;  // by task, -1: none
  LaneOrder order_;
};

}  // namespace

struct StreamLanes::State {
  State(c10::Device device_, int lanes_)
      : guard(guard_of(device_)),
        device(device_.has_index() ? device_ : guard.getDevice()),
        lanes(lanes_),
        events(device.type()) {
    for (int lane = 1; lane < lanes; ++lane) {
      own.push_back(guard.getStreamFromGlobalPool(device, /*isHighPriority=*/lane < 2));
    }
  }

  std::mutex turn;
  c10::impl::VirtualGuardImpl guard;
  c10::Device device;
  int lanes;
  std::vector<c10::Stream> own;  // of lanes 1, 2, ...
  Events events;
  std::optional<c10::Stream> last_caller;
  Issue* running = nullptr;
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
        "stream lanes: in this graph any free lane may take a task, but the host cannot know which "
        "stream is free; build the graph with LaneRule::fixed");
  }
  if (graph.lanes() > lanes()) {
    throw std::invalid_argument("stream lanes: the graph has " + std::to_string(graph.lanes()) +
                                " lanes, but this executor has " + std::to_string(lanes()) +
                                "; build the graph for fewer or the executor with more");
  }
  const RunScope scope(state_.get());
  const std::lock_guard turn(state_->turn);
  const c10::Stream caller = state_->guard.getStream(state_->device);
  state_->events.reuse_all();
  std::vector<Issue::Start> starts;
  if (graph.lanes() > 1) starts.push_back({caller, state_->events.record(caller)});
  // The caller before this one is after all lanes, but this one need not be after that.
  if (const auto& last = state_->last_caller; last && *last != caller) {
    starts.push_back({*last, state_->events.record(*last)});
  }
  state_->last_caller = caller;

  std::vector<c10::Stream> streams{caller};
  streams.insert(streams.end(), state_->own.begin(), state_->own.end());
  Issue issue(graph, std::move(streams), state_->events);
  state_->running = &issue;
  std::exception_ptr error;
  try {
    issue.run(starts, body, observer);
  } catch (...) {
    error = std::current_exception();
  }
  state_->running = nullptr;
  try {
    issue.join();
  } catch (...) {
    if (error == nullptr) throw;
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void StreamLanes::hand_back(std::shared_ptr<const void> memory, int owner) {
  if (state_->running != nullptr) state_->running->hand_back(std::move(memory), owner);
}

}  // namespace pareprop
