#include "pareprop/ops/meta_device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace pareprop {
namespace {

// Of torch's keys for modes of a thread, the one that torch itself leaves to others.
constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

void make_on_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kMode);
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (arguments[i].name() == "device" && value.isNone()) value = c10::Device(c10::kMeta);
  }
  op.callBoxed(stack);
}

void install() {
  static torch::Library library = [] {
    torch::Library made(torch::Library::IMPL, "_", kMode, __FILE__, __LINE__);
    made.fallback(torch::CppFunction::makeFromBoxedFunction<&make_on_meta>());
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace

MetaDeviceScope::MetaDeviceScope() : included_((install(), kMode)) {}

}  // namespace pareprop
