#pragma once

#include <c10/core/Stream.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/lanes/gate.h"
#include "tests/simulated_device/clocks.h"

// What the parts of the simulated device share: clocks, events, closures and counters.

namespace pareprop::testing {

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

constexpr auto kSimulated = c10::DeviceType::PrivateUse1;

// "aten::addmm.out"
std::string full_name(const c10::FunctionSchema& schema);

int actor_of(const c10::Stream& stream);
c10::Stream stream_of(int actor);

// Runs the closures of one stream.
class StreamThread {
 public:
  StreamThread();
  void push(std::function<void()> work);
  void set_delays(std::uint64_t seed, int most);
  bool is_empty();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

using EventTime = std::chrono::steady_clock::time_point;

// The handle behind a c10::Event. Each recording has a gate of its own, so that waits for an
// earlier one do not notice a later one.
struct EventHandle {
  VectorClock clock;
  std::shared_ptr<Gate> gate;  // opens when the stream's closures are done; null: it had none
  EventTime time;
};

class Machine {
 public:
  static Machine& get();

  // An operator begins on a stream. Returns the stream's time for it.
  std::uint64_t launch(int actor, const c10::FunctionSchema* schema);
  // Throws what a device that is lost gives for every call.
  void expect_not_lost() const;
  void expect_bfloat16(const c10::FunctionSchema& schema) const;
  // Uses memory at that time; throws or collects a Race.
  void use(History& history, Access access);
  // REQUIRES: mutex is held. Throws or collects it.
  void report(const std::string& race);
  // `after` is ordered after all that `before` was given until now.
  void order(int before, int after);

  // When the stream will have done what it was given, of the simulated time.
  EventTime done_at(int actor) const;
  void record(EventHandle& event, int actor);
  void block(const EventHandle& event, int actor);
  // The host has waited.
  void host_waited_for(const EventHandle& event);
  void host_waited_for(int actor);
  // Does `work` when the host has waited for what the stream was given until now.
  void when_host_knows(int actor, std::function<void()> work);
  bool host_knows(int actor, std::uint64_t time) const;

  StreamThread& thread(int actor);
  // Opens when the closures that the stream has now are done; null when it never had any.
  std::shared_ptr<Gate> mark(int actor);
  void set_delays(std::uint64_t seed, int most);

  mutable std::mutex mutex;  // guards everything below
  std::array<VectorClock, SimulatedDevice::kActors> clocks;
  VectorClock host;
  SimulatedDevice::Counts counts;
  std::unordered_map<const c10::FunctionSchema*, std::int64_t> launches;
  std::vector<std::pair<const void*, c10::Stream>> recorded_memory;
  std::array<int, SimulatedDevice::kDevices * 2> handed_out{};
  std::vector<std::string>* collected = nullptr;
  struct {
    bool armed = false;
    Mutation::Kind kind = Mutation::Kind::event_block;
    int left = 0;
    bool happened = false;
  } mutation;

  // REQUIRES: mutex is held. Whether this call is the one to leave out.
  bool left_out(Mutation::Kind kind);

  Fault fault;
  std::int64_t launches_of_fault = 0;  // since it is there
  bool has_come(std::int64_t after) const {
    return after != Fault::kNever && launches_of_fault > after;
  }

  std::chrono::microseconds operator_time{0};
  std::array<EventTime, SimulatedDevice::kActors> busy_until{};

 private:
  void host_learns(const VectorClock& clock, std::unique_lock<std::mutex>& lock);

  struct Pending {
    VectorClock after;
    std::function<void()> work;
  };
  // Guarded by mutex.
  std::vector<Pending> pending_;
  std::array<std::unique_ptr<StreamThread>, SimulatedDevice::kActors> threads_;
  std::uint64_t delay_seed_ = 0;
  int delay_most_ = 0;
};

// Of the calling thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
int current_actor(c10::DeviceIndex device);
void set_current_actor(int actor);

void register_guard();      // guard, hooks, generators
void register_memory();     // allocators of the device and of pinned memory
void register_operators();  // every operator of aten
void register_attention();
void register_autocast();

}  // namespace pareprop::testing
