#include "tests/simulated_device/machine.h"

#include <ATen/core/function_schema.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <random>
#include <thread>

namespace pareprop::testing {
namespace {

thread_local c10::DeviceIndex this_threads_device = 0;
thread_local std::array<int, SimulatedDevice::kDevices> this_threads_streams{};

}  // namespace

std::string full_name(const c10::FunctionSchema& schema) {
  const std::string& overload = schema.overload_name();
  return schema.name() + (overload.empty() ? "" : "." + overload);
}

int actor_of(const c10::Stream& stream) {
  return stream.device_index() * SimulatedDevice::kStreams + static_cast<int>(stream.id());
}

c10::Stream stream_of(int actor) {
  const auto index = static_cast<c10::DeviceIndex>(actor / SimulatedDevice::kStreams);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSimulated, index),
                     actor % SimulatedDevice::kStreams);
}

c10::DeviceIndex current_device() { return this_threads_device; }
void set_current_device(c10::DeviceIndex index) { this_threads_device = index; }
int current_actor(c10::DeviceIndex device) {
  return device * SimulatedDevice::kStreams + this_threads_streams[at(device)];
}
void set_current_actor(int actor) {
  this_threads_streams[at(actor / SimulatedDevice::kStreams)] = actor % SimulatedDevice::kStreams;
}

struct StreamThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::mt19937_64 random;
  int most = 0;

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return !queue.empty(); });
      const std::function<void()> next = queue.front();
      const int late = std::uniform_int_distribution(0, most)(random);
      lock.unlock();
      if (late > 0) std::this_thread::sleep_for(std::chrono::microseconds(late));
      next();
      lock.lock();
      queue.pop_front();
    }
  }
};

// The thread sleeps until the process ends, as the machine itself is there until then: tensors of
// static lifetime are freed late.
StreamThread::StreamThread() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { state->work(); }).detach();
}

void StreamThread::push(std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(work));
  state_->changed.notify_all();
}

void StreamThread::set_delays(std::uint64_t seed, int most) {
  const std::lock_guard lock(state_->mutex);
  state_->random.seed(seed);
  state_->most = most;
}

bool StreamThread::is_empty() {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.empty();
}

Machine& Machine::get() {
  static auto* const machine = new Machine;
  return *machine;
}

void Machine::expect_not_lost() const {
  if (!has_come(fault.lost_after)) return;
  constexpr int kLaunchFailure = 719;  // of CUDA
  throw c10::AcceleratorError(
      {__func__, __FILE__, __LINE__}, kLaunchFailure,
      "simulated error: unspecified launch failure\nKernel errors might be reported later");
}

void Machine::expect_bfloat16(const c10::FunctionSchema& schema) const {
  const std::lock_guard lock(mutex);
  TORCH_CHECK_NOT_IMPLEMENTED(!fault.no_bfloat16, "\"", schema.name(),
                              "\" not implemented for 'BFloat16'");
}

std::uint64_t Machine::launch(int actor, const c10::FunctionSchema* schema) {
  const std::lock_guard lock(mutex);
  ++counts.launches;
  ++launches[schema];
  ++launches_of_fault;
  expect_not_lost();
  if (!fault.missing_operator.empty() && fault.missing_operator == full_name(*schema)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "Could not run '", fault.missing_operator,
        "' with arguments from the 'PrivateUse1' backend. This could be because the operator "
        "doesn't exist for this backend.\nCPU: registered elsewhere");
  }
  busy_until[at(actor)] = done_at(actor) + operator_time;
  clocks[at(actor)].join(host);
  return clocks[at(actor)].tick(actor);
}

void Machine::use(History& history, Access access) {
  const std::lock_guard lock(mutex);
  const VectorClock& now = clocks[at(access.actor)];
  if (const auto race = history.add(std::move(access), now)) report(*race);
}

void Machine::report(const std::string& race) {
  if (collected == nullptr) throw Race(race);
  collected->push_back(race);
}

void Machine::order(int before, int after) {
  const std::lock_guard lock(mutex);
  clocks[at(after)].join(clocks[at(before)]);
}

bool Machine::left_out(Mutation::Kind kind) {
  if (!mutation.armed || mutation.kind != kind || mutation.left-- != 0) return false;
  mutation.happened = true;
  return true;
}

EventTime Machine::done_at(int actor) const {
  return std::max(busy_until[at(actor)], EventTime::clock::now());
}

void Machine::record(EventHandle& event, int actor) {
  auto gate = mark(actor);
  const std::lock_guard lock(mutex);
  expect_not_lost();
  ++counts.records;
  event = {.clock = clocks[at(actor)], .gate = std::move(gate), .time = done_at(actor)};
}

void Machine::block(const EventHandle& event, int actor) {
  {
    const std::lock_guard lock(mutex);
    expect_not_lost();
    ++counts.blocks;
    if (left_out(Mutation::Kind::event_block)) return;
    clocks[at(actor)].join(event.clock);
    busy_until[at(actor)] = std::max(busy_until[at(actor)], event.time);
  }
  if (!event.gate) return;
  thread(actor).push([gate = event.gate] {
    while (!gate->wait()) {
    }
  });
}

void Machine::host_learns(const VectorClock& clock, std::unique_lock<std::mutex>& lock) {
  host.join(clock);
  std::vector<Pending> arrived;
  for (std::size_t i = 0; i < pending_.size();) {
    if (host.covers(pending_[i].after)) {
      arrived.push_back(std::move(pending_[i]));
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  lock.unlock();
  for (const Pending& one : arrived) one.work();
}

void Machine::host_waited_for(const EventHandle& event) {
  std::this_thread::sleep_until(event.time);
  std::unique_lock lock(mutex);
  expect_not_lost();
  host_learns(event.clock, lock);
}

void Machine::host_waited_for(int actor) {
  std::unique_lock lock(mutex);
  expect_not_lost();
  const EventTime done = busy_until[at(actor)];
  const VectorClock clock = clocks[at(actor)];
  lock.unlock();
  std::this_thread::sleep_until(done);
  lock.lock();
  host_learns(clock, lock);
}

void Machine::when_host_knows(int actor, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  pending_.push_back({clocks[at(actor)], std::move(work)});
}

bool Machine::host_knows(int actor, std::uint64_t time) const { return time <= host[actor]; }

StreamThread& Machine::thread(int actor) {
  const std::lock_guard lock(mutex);
  auto& thread = threads_[at(actor)];
  if (!thread) {
    thread = std::make_unique<StreamThread>();
    thread->set_delays(delay_seed_ + static_cast<std::uint64_t>(actor), delay_most_);
  }
  return *thread;
}

std::shared_ptr<Gate> Machine::mark(int actor) {
  {
    const std::lock_guard lock(mutex);
    if (!threads_[at(actor)]) return nullptr;
  }
  auto gate = std::make_shared<Gate>();
  thread(actor).push([gate] { gate->open(); });
  return gate;
}

void Machine::set_delays(std::uint64_t seed, int most) {
  const std::lock_guard lock(mutex);
  delay_seed_ = seed;
  delay_most_ = most;
  for (int actor = 0; actor < SimulatedDevice::kActors; ++actor) {
    if (auto& thread = threads_[at(actor)]) {
      thread->set_delays(seed + static_cast<std::uint64_t>(actor), most);
    }
  }
}

}  // namespace pareprop::testing
