#include "tests/simulated_device/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>

#include "tests/simulated_device/machine.h"

namespace pareprop::testing {
namespace {

class SimulatedGenerator final : public c10::GeneratorImpl {
 public:
  SimulatedGenerator(c10::DeviceIndex device, at::Generator drawing)
      : GeneratorImpl(c10::Device(kSimulated, device),
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        drawing_(std::move(drawing)) {}

  void set_current_seed(std::uint64_t seed) override { drawing_.set_current_seed(seed); }
  void set_offset(std::uint64_t offset) override { drawing_.set_offset(offset); }
  std::uint64_t get_offset() const override { return drawing_.get_offset(); }
  std::uint64_t current_seed() const override { return drawing_.current_seed(); }
  std::uint64_t seed() override { return drawing_.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    drawing_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return drawing_.unsafeGetGeneratorImpl()->get_state();
  }
  const at::Generator& drawing() const { return drawing_; }

 private:
  SimulatedGenerator* clone_impl() const override {
    return new SimulatedGenerator(device().index(), drawing_.clone());
  }

  at::Generator drawing_;
};

}  // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<SimulatedGenerator>(device, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* const generators = new std::array{new_generator(0), new_generator(1)};
  return generators->at(static_cast<std::size_t>(device));
}

at::Generator drawing_generator(const at::Generator& generator) {
  if (generator.device().is_cpu()) return generator;
  return static_cast<const SimulatedGenerator*>(generator.unsafeGetGeneratorImpl())->drawing();
}

}  // namespace pareprop::testing
