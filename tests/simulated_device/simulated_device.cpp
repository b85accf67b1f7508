#include "tests/simulated_device/simulated_device.h"

#include "tests/simulated_device/machine.h"

namespace pareprop::testing {
namespace {

// Linked because tests call what is below, and run before main().
const bool registered = [] {
  register_guard();
  register_memory();
  register_operators();
  register_attention();
  register_autocast();
  return true;
}();

}  // namespace

c10::Device SimulatedDevice::device(int index) {
  return c10::Device(kSimulated, static_cast<c10::DeviceIndex>(index));
}

SimulatedDevice::Counts SimulatedDevice::counts() {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().counts;
}

std::map<std::string, std::int64_t> SimulatedDevice::launches() {
  const std::lock_guard lock(Machine::get().mutex);
  std::map<std::string, std::int64_t> named;
  for (const auto& [schema, times] : Machine::get().launches) {
    named[full_name(*schema)] += times;
  }
  return named;
}

std::vector<std::pair<const void*, c10::Stream>> SimulatedDevice::recorded_memory() {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().recorded_memory;
}

void SimulatedDevice::reset_counts() {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().counts = {};
  Machine::get().launches.clear();
  Machine::get().recorded_memory.clear();
}

bool SimulatedDevice::is_ordered(const c10::Stream& before, const c10::Stream& after) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const int actor = actor_of(before);
  const auto time = machine.clocks[static_cast<std::size_t>(actor)][actor];
  return time <= machine.clocks[static_cast<std::size_t>(actor_of(after))][actor] ||
         machine.host_knows(actor, time);
}

void SimulatedDevice::enqueue(std::function<void()> work) {
  Machine::get().thread(current_actor(current_device())).push(std::move(work));
}

void SimulatedDevice::set_delays(std::uint64_t seed, int most) {
  Machine::get().set_delays(seed, most);
}

void SimulatedDevice::set_operator_time(std::chrono::microseconds time) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().operator_time = time;
}

void SimulatedDevice::finish() {
  for (int actor = 0; actor < kActors; ++actor) {
    if (const auto gate = Machine::get().mark(actor)) {
      while (!gate->wait()) {
      }
    }
    Machine::get().host_waited_for(actor);
  }
}

namespace {
std::vector<std::string> collected_races;  // guarded by the machine's mutex
}

RaceCollector::RaceCollector() {
  const std::lock_guard lock(Machine::get().mutex);
  collected_races.clear();
  Machine::get().collected = &collected_races;
}

RaceCollector::~RaceCollector() {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().collected = nullptr;
}

std::vector<std::string> RaceCollector::races() const {
  const std::lock_guard lock(Machine::get().mutex);
  return collected_races;
}

Mutation::Mutation(Kind kind, int number) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().mutation = {.armed = true, .kind = kind, .left = number, .happened = false};
}

Mutation::~Mutation() {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().mutation.armed = false;
}

bool Mutation::happened() const {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().mutation.happened;
}

FaultScope::FaultScope(Fault fault) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().fault = std::move(fault);
  Machine::get().launches_of_fault = 0;
}

FaultScope::~FaultScope() {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().fault = {};
}

}  // namespace pareprop::testing
