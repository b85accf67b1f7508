#include "pareprop/device/choose_device.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <stdexcept>

namespace pareprop {
namespace {

// What torch warns of while it looks for devices: the only place where it says why there is none
// (an old driver, a driver that does not answer).
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const std::lock_guard lock(mutex_);
    if (!first_.empty()) return;
    first_ = warning.msg().substr(0, warning.msg().find('\n'));
  }
  std::string first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  std::string first_;
};

struct Found {
  int devices = 0;
  std::string warning;
};

Found find_devices(c10::DeviceType type) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const int devices = c10::impl::VirtualGuardImpl(type).deviceCount();
  return {devices, warnings.first()};
}

[[noreturn]] void fail(const std::string& wrong, const std::string& cure) {
  throw std::invalid_argument(wrong + "; " + cure);
}

std::optional<c10::Device> parse(const std::string& spec) {
  try {
    return c10::Device(spec);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

c10::Device first_accelerator(int local_rank) {
  const auto type = at::accelerator::getAccelerator(/*checked=*/false);
  if (!type || !c10::impl::hasDeviceGuardImpl(*type)) return at::kCPU;
  const int devices = find_devices(*type).devices;
  if (devices == 0) return at::kCPU;
  return {*type, static_cast<c10::DeviceIndex>(local_rank % devices)};
}

// By the driver that torch has loaded. Its two functions have had this form since CUDA 2, so no
// header of the toolkit is needed.
std::string cuda_name(int index) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return {};
  using GetDevice = int (*)(int*, int);
  using GetName = int (*)(char*, int, int);
  const auto get_device = reinterpret_cast<GetDevice>(dlsym(driver, "cuDeviceGet"));
  const auto get_name = reinterpret_cast<GetName>(dlsym(driver, "cuDeviceGetName"));
  std::array<char, 256> name{};
  int device = 0;
  const bool known = get_device != nullptr && get_name != nullptr &&
                     get_device(&device, index) == 0 &&
                     get_name(name.data(), static_cast<int>(name.size()) - 1, device) == 0;
  dlclose(driver);
  return known ? std::string(name.data()) : std::string();
}

}  // namespace

c10::Device named_device(const std::string& spec) {
  if (spec == "auto") return first_accelerator(0);
  const auto asked = parse(spec);
  if (!asked || asked->is_meta()) {
    fail("torch has no device '" + spec + "'", "expected auto, cpu, cuda or cuda:N");
  }
  return asked->is_cpu() ? c10::Device(at::kCPU) : *asked;
}

bool is_present(c10::Device device) {
  if (device.is_cpu()) return true;
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return false;
  return find_devices(device.type()).devices > std::max<int>(0, device.index());
}

c10::Device choose_device(const std::string& spec, int local_rank) {
  if (spec == "auto") return first_accelerator(local_rank);
  const c10::Device asked = named_device(spec);
  if (asked.is_cpu()) return asked;
  const std::string type = c10::DeviceTypeName(asked.type(), /*lower_case=*/true);
  if (!c10::impl::hasDeviceGuardImpl(asked.type())) {
    fail("this torch was built without " + type,
         asked.is_cuda() ? "build with TORCH=cuda (see README), or use cpu" : "use cpu");
  }
  const Found found = find_devices(asked.type());
  if (found.devices == 0) {
    fail("no " + type + " device was found on this machine",
         (found.warning.empty() ? "" : "torch says: " + found.warning + "; ") + "use cpu");
  }
  const int index = asked.has_index() ? asked.index() : local_rank % found.devices;
  if (index >= found.devices) {
    fail("this machine has " + std::to_string(found.devices) + " of them, got '" + spec + "'",
         "expected " + type + ":0" +
             (found.devices > 1 ? " to " + type + ":" + std::to_string(found.devices - 1) : ""));
  }
  return {asked.type(), static_cast<c10::DeviceIndex>(index)};
}

int processes_on(c10::Device device, const std::string& spec, int processes) {
  int found = 0;
  for (int rank = 0; rank < processes; ++rank) found += choose_device(spec, rank) == device ? 1 : 0;
  return std::max(1, found);
}

std::string accelerator_name(c10::Device device) {
  if (device.is_cpu()) return {};
  const std::string name = device.is_cuda() ? cuda_name(device.index()) : std::string();
  return name.empty() ? c10::DeviceTypeName(device.type(), /*lower_case=*/true) : name;
}

std::string device_text(c10::Device device) {
  const std::string name = device.is_cuda() ? cuda_name(device.index()) : std::string();
  return device.str() + (name.empty() ? "" : ", " + name);
}

}  // namespace pareprop
