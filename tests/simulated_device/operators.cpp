#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulated_device/generator.h"
#include "tests/simulated_device/launch.h"
#include "tests/simulated_device/machine.h"
#include "tests/simulated_device/memory.h"

namespace pareprop::testing {
namespace {

using at::Tensor;
using c10::IValue;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// The arguments of one call, as the CPU's kernel takes them.
class CpuCall {
 public:
  CpuCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        schema_(op.schema()),
        stack_(stack),
        first_(stack.size() - schema_.arguments().size()) {
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) find_device(stack_[first_ + i]);
    if (!device_) device_ = c10::Device(kSimulated, current_device());
  }

  void run() {
    const c10::DeviceGuard guard(*device_);
    const Launch launch(op_, *device_);
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) give(launch, static_cast<int>(i));
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    for (const auto& [original, fresh] : resized_) fill_resized(original, fresh);
    take_results(launch);
  }

 private:
  struct Given {
    Tensor original, alias;
    int argument;
    bool written;
  };

  void find_device(const IValue& value) {
    if (device_) return;
    if (value.isTensor() && is_simulated(value.toTensor())) {
      device_ = value.toTensor().device();
    } else if (value.isDevice() && value.toDevice().type() == kSimulated) {
      device_ = value.toDevice();
    } else if (value.isList()) {
      for (const IValue& element : value.toListRef()) find_device(element);
    }
  }

  static bool is_written(const c10::AliasInfo* alias) {
    if (alias == nullptr) return false;
    if (alias->isWrite()) return true;
    return !alias->containedTypes().empty() && alias->containedTypes()[0].isWrite();
  }

  Tensor give_tensor(const Launch& launch, const Tensor& t, int argument, bool written) {
    if (!t.defined()) return t;
    if (!is_simulated(t)) {
      TORCH_CHECK(t.dim() == 0 && t.is_cpu(), schema_.name(), ": expected all tensors on ",
                  *device_, ", but argument '",
                  schema_.arguments()[static_cast<std::size_t>(argument)].name(), "' is on ",
                  t.device());
      return t;
    }
    written ? launch.writes(t, argument) : launch.reads(t, argument);
    if (written && t.dim() == 1 && t.numel() == 0) {
      // The kernel may make it as large as its result is.
      Tensor fresh = at::empty({0}, t.options().device(at::kCPU));
      resized_.emplace_back(t, fresh);
      given_.push_back({t, fresh, argument, written});
      return fresh;
    }
    given_.push_back({t, as_cpu(t), argument, written});
    return given_.back().alias;
  }

  void give(const Launch& launch, int argument) {
    IValue& value = stack_[first_ + static_cast<std::size_t>(argument)];
    const auto& declared = schema_.arguments()[static_cast<std::size_t>(argument)];
    const bool written = is_written(declared.alias_info());
    if (value.isTensor()) {
      value = give_tensor(launch, value.toTensor(), argument, written);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) {
        list.push_back(give_tensor(launch, t, argument, written));
      }
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& t : value.toOptionalTensorVector()) {
        list.push_back(t ? std::optional(give_tensor(launch, *t, argument, written)) : t);
      }
      value = std::move(list);
    } else if (value.isDevice()) {
      value = c10::Device(at::kCPU);
    } else if (value.isGenerator()) {
      value = drawing_generator(value.toGenerator());
    } else if (value.isNone() && declared.name() == "generator") {
      value = drawing_generator(default_generator(device_->index()));
    }
  }

  static void fill_resized(const Tensor& original, const Tensor& fresh) {
    if (fresh.numel() == 0 && original.sizes() == fresh.sizes()) return;
    at::native::resize_(original, fresh.sizes());
    original.unsafeGetTensorImpl()->set_sizes_and_strides(fresh.sizes(), fresh.strides());
    if (fresh.numel() > 0) as_cpu(original).copy_(fresh);
  }

  const Tensor& original_of(const Tensor& alias, const c10::AliasInfo& declared) const {
    for (const Given& given : given_) {
      const auto* info = schema_.arguments()[static_cast<std::size_t>(given.argument)].alias_info();
      if (given.alias.is_same(alias)) return given.original;
      if (info != nullptr && info->beforeSets() == declared.beforeSets()) return given.original;
    }
    TORCH_CHECK(false, schema_.name(), ": a result that it shares with no argument");
  }

  // A result of the CPU's kernel as a tensor of the device: a view where it is one.
  Tensor take(const Launch& launch, const Tensor& result, int number) const {
    if (!result.defined()) return result;
    const auto* data = static_cast<const std::byte*>(result.storage().data());
    for (const Given& given : given_) {
      if (data == nullptr || given.alias.storage().data() != data) continue;
      Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(given.original.storage()),
                                                             kKeys, result.dtype());
      view.unsafeGetTensorImpl()->set_storage_offset(result.storage_offset());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
      return view;
    }
    return launch.result(result, number);
  }

  void take_results(const Launch& launch) {
    const auto& returns = schema_.returns();
    bool host_value =
        op_.hasTag(at::Tag::data_dependent_output) || op_.hasTag(at::Tag::dynamic_output_shape);
    const std::size_t start = stack_.size() - returns.size();
    for (std::size_t i = 0; i < returns.size(); ++i) {
      IValue& value = stack_[start + i];
      const auto* alias = returns[i].alias_info();
      const int number = static_cast<int>(i);
      if (value.isTensor() && is_written(alias)) {
        value = original_of(value.toTensor(), *alias);
      } else if (value.isTensor()) {
        value = take(launch, value.toTensor(), number);
      } else if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& t : value.toTensorVector()) list.push_back(take(launch, t, number));
        value = std::move(list);
      } else {
        host_value = true;
      }
    }
    if (host_value) launch.host_reads();
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  const std::size_t first_;
  std::optional<c10::Device> device_;
  std::vector<Given> given_;
  std::vector<std::pair<Tensor, Tensor>> resized_;
};

c10::Device device_or_current(std::optional<c10::Device> device) {
  if (device && device->has_index()) return *device;
  return {kSimulated, current_device()};
}

Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout>, std::optional<c10::Device> device,
                           std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(sizes, c10::GetAllocator(kSimulated), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(kSimulated), kKeys,
                                           c10::dtype_or_default(dtype));
}

const Tensor& resize(const Tensor& self, at::IntArrayRef sizes,
                     std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  return at::native::resize_(self, sizes, format);
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

void record_stream(Tensor& self, at::Stream stream) {
  record_on_stream(self.storage().data_ptr(), stream);
}

// Operators that torch would take to pieces on an unknown device, and accelerators have whole.
bool is_whole(const c10::OperatorName& name) {
  static const std::vector<std::string> whole{"aten::convolution", "aten::convolution_backward",
                                              "aten::native_layer_norm", "aten::native_group_norm"};
  if (!name.overload_name.empty() && name.name.rfind("aten::_foreach_", 0) != 0) return false;
  if (name.name.rfind("aten::_foreach_", 0) == 0) {
    const std::string& overload = name.overload_name;
    return overload.size() < 3 || overload.compare(overload.size() - 3, 3, "out") != 0;
  }
  return std::find(whole.begin(), whole.end(), name.name) != whole.end();
}

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  CpuCall(op, *stack).run();
}

void register_operators() {
  static torch::Library every(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__,
                              __LINE__);
  every.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());

  static torch::Library m(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                          __LINE__);
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  m.impl("_has_compatible_shallow_copy_type", [](const Tensor&, const Tensor&) { return true; });
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!is_whole(name)) continue;
    m.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

}  // namespace pareprop::testing
