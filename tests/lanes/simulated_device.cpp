#include "tests/lanes/simulated_device.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "tests/lanes/gate.h"

namespace pareprop::testing {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr auto kType = c10::DeviceType::PrivateUse1;

class StreamThread {
 public:
  StreamThread() : thread_([this] { work(); }) {}
  ~StreamThread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }

  void set_delays(std::uint64_t seed, int most) {
    const std::lock_guard lock(mutex_);
    random_.seed(seed);
    most_ = most;
  }

  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return queue_.empty();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> next = queue_.front();
      const int late = std::uniform_int_distribution(0, most_)(random_);
      lock.unlock();
      if (late > 0) std::this_thread::sleep_for(std::chrono::microseconds(late));
      next();
      lock.lock();
      queue_.pop_front();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::mt19937_64 random_;
  int most_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

// The handle behind a c10::Event. Each recording has a gate of its own, so that waits for an
// earlier one do not notice a later one.
struct EventHandle {
  std::shared_ptr<Gate> latest;
};

struct Machine {
  std::array<std::array<StreamThread, SimulatedDevice::kPool + 1>, SimulatedDevice::kDevices>
      streams;

  std::mutex mutex;  // guards what follows
  std::array<int, SimulatedDevice::kDevices> handed_out{};
  SimulatedDevice::Counts counts;
  std::vector<std::pair<const void*, Stream>> recorded_memory;

  StreamThread& at(const Stream& stream) {
    return streams.at(static_cast<std::size_t>(stream.device_index()))
        .at(static_cast<std::size_t>(stream.id()));
  }
};

Machine& machine() {
  static Machine instance;
  return instance;
}

void count(int SimulatedDevice::Counts::*what) {
  const std::lock_guard lock(machine().mutex);
  ++(machine().counts.*what);
}

thread_local DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, SimulatedDevice::kDevices> current_stream{};

std::shared_ptr<Gate> mark(StreamThread& stream) {
  auto gate = std::make_shared<Gate>();
  stream.push([gate] { gate->open(); });
  return gate;
}

void wait(Gate& gate) {
  while (!gate.wait()) {
  }
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  Device getDevice() const override { return Device(kType, current_device); }
  void setDevice(Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override {
    current_device = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return SimulatedDevice::kDevices; }

  Stream getStream(Device device) const override {
    return Stream(Stream::UNSAFE, device, current_stream.at(index(device)));
  }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    const std::lock_guard lock(machine().mutex);
    int& turn = machine().handed_out.at(index(device));
    return Stream(Stream::UNSAFE, device, 1 + turn++ % SimulatedDevice::kPool);
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream previous = getStream(stream.device());
    current_stream.at(index(stream.device())) = stream.id();
    return previous;
  }

  void record(void** event, const Stream& stream, const DeviceIndex device_index,
              const c10::EventFlag) const override {
    TORCH_CHECK(device_index == -1 || device_index == stream.device_index(), "event of device ",
                int{device_index}, " recorded on a stream of device ", int{stream.device_index()});
    count(&SimulatedDevice::Counts::records);
    if (*event == nullptr) *event = new EventHandle;
    static_cast<EventHandle*>(*event)->latest = mark(machine().at(stream));
  }
  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) return;
    count(&SimulatedDevice::Counts::blocks);
    machine().at(stream).push([gate = static_cast<EventHandle*>(event)->latest] { wait(*gate); });
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<EventHandle*>(event);
  }

  bool queryEvent(void* event) const override {
    count(&SimulatedDevice::Counts::host_waits);
    return event == nullptr ||
           static_cast<EventHandle*>(event)->latest->wait(std::chrono::milliseconds(0));
  }
  bool queryStream(const Stream& stream) const override {
    count(&SimulatedDevice::Counts::host_waits);
    return machine().at(stream).is_empty();
  }
  void synchronizeEvent(void* event) const override {
    count(&SimulatedDevice::Counts::host_waits);
    if (event != nullptr) wait(*static_cast<EventHandle*>(event)->latest);
  }
  void synchronizeStream(const Stream& stream) const override {
    count(&SimulatedDevice::Counts::host_waits);
    wait(*mark(machine().at(stream)));
  }
  void synchronizeDevice(const DeviceIndex device_index) const override {
    count(&SimulatedDevice::Counts::host_waits);
    for (StreamThread& stream : machine().streams.at(static_cast<std::size_t>(device_index))) {
      wait(*mark(stream));
    }
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& stream) const override {
    const std::lock_guard lock(machine().mutex);
    machine().recorded_memory.emplace_back(memory.get(), stream);
  }

 private:
  static std::size_t index(Device device) {
    return static_cast<std::size_t>(device.has_index() ? device.index() : current_device);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

Device SimulatedDevice::device(int index) { return Device(kType, static_cast<DeviceIndex>(index)); }

void SimulatedDevice::enqueue(std::function<void()> work) {
  const Guard guard;
  machine().at(guard.getStream(guard.getDevice())).push(std::move(work));
}

void SimulatedDevice::set_delays(std::uint64_t seed, int most) {
  for (auto& streams : machine().streams) {
    for (StreamThread& stream : streams) stream.set_delays(seed++, most);
  }
}

SimulatedDevice::Counts SimulatedDevice::counts() {
  const std::lock_guard lock(machine().mutex);
  return machine().counts;
}

std::vector<std::pair<const void*, Stream>> SimulatedDevice::recorded_memory() {
  const std::lock_guard lock(machine().mutex);
  return machine().recorded_memory;
}

void SimulatedDevice::reset_counts() {
  const std::lock_guard lock(machine().mutex);
  machine().counts = {};
  machine().recorded_memory.clear();
}

void SimulatedDevice::finish() {
  for (auto& streams : machine().streams) {
    for (StreamThread& stream : streams) wait(*mark(stream));
  }
}

}  // namespace pareprop::testing
