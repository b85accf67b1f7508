#include "pareprop/ops/meta_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "pareprop/memory/meter.h"

namespace pareprop {
namespace {

at::Tensor zeros_like_on_cpu(const at::Tensor& t) {
  if (!t.defined() || !t.is_meta()) return t;
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU)).zero_();
}

// What a tensor of the CPU leaves behind when its memory is gone.
struct Shape {
  std::vector<std::int64_t> sizes, strides;
  at::TensorOptions options;
  bool defined = false;

  explicit Shape(const at::Tensor& t) : defined(t.defined()) {
    if (!defined) return;
    sizes = t.sizes().vec();
    strides = t.strides().vec();
    options = t.options().device(at::kMeta);
  }

  at::Tensor made() const {
    return defined ? at::empty_strided(sizes, strides, options) : at::Tensor();
  }
};

c10::IValue on_cpu(const c10::IValue& value) {
  if (value.isTensor()) return zeros_like_on_cpu(value.toTensor());
  if (value.isDevice() && value.toDevice().is_meta()) return at::Device(at::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(zeros_like_on_cpu(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& t : value.toOptionalTensorVector()) {
      list.push_back(t ? std::optional(zeros_like_on_cpu(*t)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// What `result` of the CPU's kernel is on the meta device: the argument that it is, for operators
// that write to their arguments, or something new of its shape.
struct Result {
  std::optional<std::size_t> argument;
  std::vector<Shape> shapes;  // one, or those of a list
  bool is_list = false;
  c10::IValue other;  // neither a tensor nor a list of them

  c10::IValue made(const std::vector<c10::IValue>& arguments) const {
    if (argument) return arguments[*argument];
    if (shapes.empty() && !is_list) return other;
    if (!is_list) return shapes.front().made();
    c10::List<at::Tensor> list;
    for (const Shape& shape : shapes) list.push_back(shape.made());
    return list;
  }
};

std::optional<std::size_t> written_argument(const c10::FunctionSchema& schema, std::size_t result) {
  const c10::AliasInfo* alias = schema.returns()[result].alias_info();
  if (alias == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* own = schema.arguments()[i].alias_info();
    if (own != nullptr && *own == *alias) return i;
  }
  return std::nullopt;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count),
                                           stack->end());
  torch::jit::drop(*stack, count);
  std::vector<Result> results;
  {
    const memory::PeaksKept uncounted;
    torch::jit::Stack cpu;
    for (const c10::IValue& argument : arguments) cpu.push_back(on_cpu(argument));
    op.callBoxed(cpu);
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      Result& result = results.emplace_back();
      result.argument = written_argument(schema, i);
      if (cpu[i].isTensor()) {
        result.shapes.emplace_back(cpu[i].toTensor());
      } else if (cpu[i].isTensorList()) {
        result.is_list = true;
        for (const at::Tensor& t : cpu[i].toTensorVector()) result.shapes.emplace_back(t);
      } else {
        result.other = cpu[i];
      }
    }
  }
  for (const Result& result : results) stack->push_back(result.made(arguments));
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, std::int64_t groups) {
  const auto shape = [&] {
    const memory::PeaksKept uncounted;
    return Shape(at::convolution(zeros_like_on_cpu(input), zeros_like_on_cpu(weight),
                                 bias ? std::optional(zeros_like_on_cpu(*bias)) : std::nullopt,
                                 stride, padding, dilation, transposed, output_padding, groups));
  }();
  return shape.made();
}

// The gradients have the shapes of what they are gradients of.
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef,
    at::IntArrayRef, at::IntArrayRef, bool transposed, at::IntArrayRef, std::int64_t groups,
    std::array<bool, 3> wanted) {
  const auto like = [&](bool is_wanted, const at::Tensor& t) {
    return is_wanted ? at::empty_strided(t.sizes(), t.strides(), t.options()) : at::Tensor();
  };
  const std::int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  return {like(wanted[0], input), like(wanted[1], weight),
          wanted[2] ? grad.new_empty({channels}) : at::Tensor()};
}

}  // namespace

void install_meta_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    // Kernels end with their library: with the process.
    static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                                  __LINE__);
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0) continue;
      const auto op = dispatcher.findSchema(name);
      if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
          !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
        continue;
      }
      const std::string full =
          name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    }
    // Torch's own are there to say that there are none.
    library.impl("convolution_overrideable", &convolution);
    library.impl("convolution_backward_overrideable", &convolution_backward);
  });
}

}  // namespace pareprop
