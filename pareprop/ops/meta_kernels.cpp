#include "pareprop/ops/meta_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>
#include <unordered_map>
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

// A tensor of the CPU of this shape whose values nobody reads: of the first sample only, because
// the choice does not depend on the batch, which may be larger than memory.
at::Tensor stand_in(const at::Tensor& all) {
  const bool has_samples = all.dim() == 4 && all.size(0) > 0;
  const at::Tensor t = has_samples ? all.narrow(0, 0, 1) : all;
  at::Tensor made = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
  return made.set_requires_grad(all.requires_grad());
}

// Which way torch takes on the CPU.
bool is_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
              const std::optional<at::Tensor>& mask, double dropout, bool causal,
              std::optional<double> scale, bool grouped) {
  const memory::PeaksKept uncounted;
  const auto choice = at::_fused_sdp_choice(stand_in(q), stand_in(k), stand_in(v),
                                            mask ? std::optional(stand_in(*mask)) : std::nullopt,
                                            dropout, causal, scale, grouped);
  return static_cast<sdp::SDPBackend>(choice) == sdp::SDPBackend::flash_attention;
}

at::Tensor scaled_dot_product_attention(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const std::optional<at::Tensor>& mask,
                                        double dropout, bool causal, std::optional<double> scale,
                                        bool grouped) {
  std::optional<at::Tensor> added = mask;
  if (mask && mask->scalar_type() == at::kBool) {
    added = at::zeros_like(*mask, q.options())
                .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (is_flash(q, k, v, mask, dropout, causal, scale, grouped)) {
    return std::get<0>(
        at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, added, scale));
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, added, dropout, causal,
                                                            std::nullopt, scale, grouped));
}

// Of (samples, heads, tokens, channels); in memory tokens come before heads.
at::Tensor tokens_first(const at::Tensor& like, std::int64_t channels) {
  return at::empty({like.size(0), like.size(2), like.size(1), channels}, like.options())
      .transpose(1, 2);
}

std::tuple<at::Tensor, at::Tensor> flash_attention(const at::Tensor& q, const at::Tensor&,
                                                   const at::Tensor& v, double, bool,
                                                   const std::optional<at::Tensor>&,
                                                   std::optional<double>) {
  const auto type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {tokens_first(q, v.size(3)),
          at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(type)).transpose(1, 2)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor&, const at::Tensor&, double, bool, const std::optional<at::Tensor>&,
    std::optional<double>) {
  return {tokens_first(q, q.size(3)), tokens_first(k, k.size(3)), tokens_first(v, v.size(3))};
}

// Operators that the CPU has one kernel for are not made of others there.
bool is_one_on_cpu(const c10::OperatorName& name) {
  thread_local std::unordered_map<c10::OperatorName, bool> known;
  const auto [entry, is_new] = known.emplace(name, false);
  if (is_new) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    entry->second = op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
  }
  return entry->second;
}

// Torch's attention on the CPU has scores of a few queries and keys for each thread, twice in the
// backward pass.
std::int64_t attention_scratch(const at::RecordFunction& call) {
  constexpr std::string_view kName = "aten::_scaled_dot_product_flash_attention_for_cpu";
  const std::string_view name = call.name();
  if (!name.starts_with(kName)) return 0;
  const bool backward = name != kName;
  const at::Tensor q = call.inputs()[backward ? 1 : 0].toTensor();
  const at::Tensor k = call.inputs()[backward ? 2 : 1].toTensor();
  const std::int64_t queries = q.size(2) >= 768 ? 256 : q.size(2) >= 192 ? 64 : 32;
  const std::int64_t scores = queries * std::min<std::int64_t>(512, k.size(2));
  const std::int64_t numbers = backward ? 2 * scores : scores + queries * (q.size(3) + 2);
  const std::int64_t bytes = q.scalar_type() == at::kDouble ? sizeof(double) : sizeof(float);
  return at::get_num_threads() * numbers * bytes;
}

thread_local bool in_operator = false;

struct OneOperator : at::ObserverContext {
  explicit OneOperator(std::int64_t scratch_bytes) : scratch(scratch_bytes) {}
  ~OneOperator() override {
    in_operator = false;
    peaks.reset();
    memory::detail::count(memory::Counted::meta, memory::current_tag(), scratch);
    memory::detail::count(memory::Counted::meta, memory::current_tag(), -scratch);
  }
  std::optional<memory::PeaksKept> peaks{std::in_place, memory::Counted::meta};
  const std::int64_t scratch;
};

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& call) {
  const auto name = call.operator_name();
  if (in_operator || !name || !is_one_on_cpu(*name)) return nullptr;
  in_operator = true;
  return std::make_unique<OneOperator>(attention_scratch(call));
}

}  // namespace

void install_meta_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    // Kernels end with their library: with the process.
    static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                                  __LINE__);
    static torch::Library differentiable(torch::Library::IMPL, "aten",
                                         c10::DispatchKey::AutogradMeta, __FILE__, __LINE__);
    const auto has_one = [&](const char* name) {
      return dispatcher.findSchemaOrThrow(name, "").hasKernelForDispatchKey(c10::DispatchKey::Meta);
    };
    if (!has_one("aten::_scaled_dot_product_flash_attention_for_cpu")) {
      library.impl("_scaled_dot_product_flash_attention_for_cpu", &flash_attention);
      library.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
                   &flash_attention_backward);
    }
    library.impl("scaled_dot_product_attention", &scaled_dot_product_attention);
    differentiable.impl("scaled_dot_product_attention", &scaled_dot_product_attention);
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

ResultsOnly::ResultsOnly()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&begin_operator)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {}
ResultsOnly::~ResultsOnly() { at::removeCallback(handle_); }

}  // namespace pareprop
