#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>

#include "tests/simulated_device/generator.h"
#include "tests/simulated_device/machine.h"
#include "tests/simulated_device/memory.h"

namespace pareprop::testing {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

void count(int SimulatedDevice::Counts::*what) {
  const std::lock_guard lock(Machine::get().mutex);
  ++(Machine::get().counts.*what);
}

void wait(const std::shared_ptr<Gate>& gate) {
  while (gate && !gate->wait()) {
  }
}

DeviceIndex index_of(Device device) {
  const DeviceIndex index = device.has_index() ? device.index() : current_device();
  TORCH_CHECK(index >= 0 && index < SimulatedDevice::kDevices, "there is no simulated device ",
              int{index}, ", only ", int{SimulatedDevice::kDevices});
  return index;
}

DeviceIndex devices_found() {
  std::string why;
  {
    const std::lock_guard lock(Machine::get().mutex);
    if (!Machine::get().fault.no_device) return SimulatedDevice::kDevices;
    why = Machine::get().fault.why_no_device;
  }
  if (!why.empty()) TORCH_WARN(why);
  return 0;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSimulated; }
  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  Device getDevice() const override { return Device(kSimulated, current_device()); }
  void setDevice(Device device) const override { set_current_device(index_of(device)); }
  void uncheckedSetDevice(Device device) const noexcept override {
    set_current_device(device.index());
  }
  DeviceIndex deviceCount() const noexcept override { return devices_found(); }

  Stream getStream(Device device) const override {
    return stream_of(current_actor(index_of(device)));
  }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    Machine& machine = Machine::get();
    const std::lock_guard lock(machine.mutex);
    const int high = high_priority ? 1 : 0;
    int& turn = machine.handed_out[static_cast<std::size_t>(2 * index_of(device) + high)];
    const int id = 1 + high * SimulatedDevice::kPool + turn++ % SimulatedDevice::kPool;
    return stream_of(index_of(device) * SimulatedDevice::kStreams + id);
  }
  Stream getNewStream(Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream previous = getStream(stream.device());
    set_current_actor(actor_of(stream));
    return previous;
  }

  void record(void** event, const Stream& stream, const DeviceIndex device_index,
              const c10::EventFlag) const override {
    TORCH_CHECK(device_index == -1 || device_index == stream.device_index(), "event of device ",
                int{device_index}, " recorded on a stream of device ", int{stream.device_index()});
    if (*event == nullptr) *event = new EventHandle;
    Machine::get().record(*static_cast<EventHandle*>(*event), actor_of(stream));
  }
  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) return;
    Machine::get().block(*static_cast<EventHandle*>(event), actor_of(stream));
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<EventHandle*>(event);
  }

  bool queryEvent(void* event) const override {
    count(&SimulatedDevice::Counts::host_waits);
    if (event == nullptr) return true;
    const auto& handle = *static_cast<EventHandle*>(event);
    if (handle.time > EventTime::clock::now()) return false;
    if (handle.gate && !handle.gate->wait(std::chrono::milliseconds(0))) return false;
    Machine::get().host_waited_for(handle);
    return true;
  }
  bool queryStream(const Stream& stream) const override {
    count(&SimulatedDevice::Counts::host_waits);
    {
      const std::lock_guard lock(Machine::get().mutex);
      const auto busy = Machine::get().busy_until[static_cast<std::size_t>(actor_of(stream))];
      if (busy > EventTime::clock::now()) return false;
    }
    const auto gate = Machine::get().mark(actor_of(stream));
    if (gate && !gate->wait(std::chrono::milliseconds(0))) return false;
    Machine::get().host_waited_for(actor_of(stream));
    return true;
  }
  void synchronizeEvent(void* event) const override {
    count(&SimulatedDevice::Counts::host_waits);
    if (event == nullptr) return;
    wait(static_cast<EventHandle*>(event)->gate);
    Machine::get().host_waited_for(*static_cast<EventHandle*>(event));
  }
  void synchronizeStream(const Stream& stream) const override {
    count(&SimulatedDevice::Counts::host_waits);
    wait(Machine::get().mark(actor_of(stream)));
    Machine::get().host_waited_for(actor_of(stream));
  }
  void synchronizeDevice(const DeviceIndex device_index) const override {
    count(&SimulatedDevice::Counts::host_waits);
    for (int id = 0; id < SimulatedDevice::kStreams; ++id) {
      const int actor = device_index * SimulatedDevice::kStreams + id;
      wait(Machine::get().mark(actor));
      Machine::get().host_waited_for(actor);
    }
  }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "both events must have been recorded");
    return std::chrono::duration<double, std::milli>(static_cast<EventHandle*>(to)->time -
                                                     static_cast<EventHandle*>(from)->time)
        .count();
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& stream) const override {
    record_on_stream(memory, stream);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return devices_found(); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex previous = current_device();
    set_current_device(device);
    return previous;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  Device getDeviceFromPtr(void*) const override { return Device(kSimulated, current_device()); }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return new_generator(device < 0 ? current_device() : device);
  }
};

}  // namespace

void register_guard() {
  c10::register_privateuse1_backend("simulated");
  static const c10::impl::DeviceGuardImplRegistrar registrar(kSimulated, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

}  // namespace pareprop::testing
