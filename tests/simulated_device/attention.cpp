#include <ATen/SDPBackend.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/matmul.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "tests/simulated_device/launch.h"
#include "tests/simulated_device/machine.h"

// The fused attention that a device other than torch's own may have.

namespace pareprop::testing {
namespace {

using at::Tensor;

const c10::OperatorHandle& operator_of(const char* name) {
  static auto* const found = new std::map<std::string, c10::OperatorHandle>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return found->try_emplace(name, c10::Dispatcher::singleton().findSchemaOrThrow(name, ""))
      .first->second;
}

std::optional<Tensor> bias_of(const std::optional<Tensor>& bias) {
  return bias && bias->defined() ? std::optional(as_cpu(*bias)) : std::nullopt;
}

void check(double dropout, bool causal) {
  TORCH_CHECK(dropout == 0.0 && !causal,
              "the simulated device has fused attention without dropout and causal masks only");
}

using Made =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Made attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& bias,
               double dropout, bool causal, bool, std::optional<double> scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  check(dropout, causal);
  const c10::DeviceGuard guard(q.device());
  const Launch launch(operator_of("aten::_scaled_dot_product_fused_attention_overrideable"),
                      q.device());
  int argument = 0;
  for (const Tensor& t : {q, k, v, bias.value_or(Tensor())}) launch.reads(t, argument++);
  const auto [output, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      as_cpu(q), as_cpu(k), as_cpu(v), dropout, causal, bias_of(bias), scale);
  return {launch.result(output, 0),
          launch.result(log_sums, 1),
          {},
          {},
          q.size(2),
          k.size(2),
          {},
          {},
          {}};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& doutput, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
    std::array<bool, 4> wanted, const Tensor& output, const Tensor& log_sums, const Tensor&,
    const Tensor&, std::int64_t, std::int64_t, double dropout, bool causal, const Tensor&,
    const Tensor&, std::optional<double> scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  check(dropout, causal);
  const c10::DeviceGuard guard(q.device());
  const Launch launch(
      operator_of("aten::_scaled_dot_product_fused_attention_overrideable_backward"), q.device());
  int argument = 0;
  for (const Tensor& t : {doutput, q, k, v, bias}) launch.reads(t, argument++);
  launch.reads(output, 6);
  launch.reads(log_sums, 7);
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      as_cpu(doutput), as_cpu(q), as_cpu(k), as_cpu(v), as_cpu(output), as_cpu(log_sums), dropout,
      causal, bias_of(bias), scale);
  Tensor dbias;
  if (wanted[3] && bias.defined()) {
    const auto wide = [](const Tensor& t) { return as_cpu(t).to(at::kFloat); };
    const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
    const Tensor probabilities = at::matmul(wide(q), wide(k).transpose(-1, -2))
                                     .mul_(factor)
                                     .add_(wide(bias))
                                     .sub_(wide(log_sums).unsqueeze(-1))
                                     .exp_();
    const Tensor delta = wide(doutput).mul(wide(output)).sum(-1, true);
    dbias = at::matmul(wide(doutput), wide(v).transpose(-1, -2))
                .sub_(delta)
                .mul_(probabilities)
                .to(bias.scalar_type());
  }
  return {launch.result(dq, 0), launch.result(dk, 1), launch.result(dv, 2),
          launch.result(dbias, 3)};
}

// Fused where check() takes it, as on a device that has a kernel for these; else composed.
std::int64_t choice(const Tensor& /*q*/, const Tensor& /*k*/, const Tensor& /*v*/,
                    const std::optional<Tensor>& /*bias*/, double dropout, bool causal,
                    std::optional<double> /*scale*/, bool /*grouped*/) {
  const bool fused = dropout == 0.0 && !causal;
  return static_cast<std::int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace

void register_attention() {
  static torch::Library m(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                          __LINE__);
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
  m.impl("_fused_sdp_choice", TORCH_FN(choice));
  // Where torch looks it up for scaled_dot_product_attention.
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choice);
}

}  // namespace pareprop::testing
