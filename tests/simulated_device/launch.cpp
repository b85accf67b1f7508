#include "tests/simulated_device/launch.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>

#include "tests/simulated_device/machine.h"
#include "tests/simulated_device/memory.h"

namespace pareprop::testing {

Launch::Launch(const c10::OperatorHandle& op, c10::Device device)
    : schema_(&op.schema()),
      device_(device),
      actor_(current_actor(device.index())),
      time_(Machine::get().launch(actor_, schema_)) {}

void Launch::use(const at::Tensor& t, int argument, bool write) const {
  if (!is_simulated(t) || t.numel() == 0) return;
  TORCH_CHECK(t.device() == device_, schema_->name(), ": expected all tensors on ", device_,
              ", but found one on ", t.device());
  if (t.scalar_type() == at::kBFloat16) Machine::get().expect_bfloat16(*schema_);
  Block* const block = block_of(t.storage().data_ptr());
  if (block == nullptr) return;
  std::int64_t last = t.storage_offset();
  for (std::int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  const auto item = static_cast<std::int64_t>(t.element_size());
  Machine::get().use(block->history, {.schema = schema_,
                                      .argument = argument,
                                      .sizes = {t.sizes().begin(), t.sizes().end()},
                                      .dtype = t.scalar_type(),
                                      .begin = t.storage_offset() * item,
                                      .end = (last + 1) * item,
                                      .write = write,
                                      .actor = actor_,
                                      .time = time_});
}

at::Tensor Launch::result(const at::Tensor& cpu, int number) const {
  if (!cpu.defined()) return cpu;
  at::Tensor made = at::detail::empty_strided_generic(
      cpu.sizes(), cpu.strides(), c10::GetAllocator(kSimulated),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), cpu.scalar_type());
  writes(made, -1 - number);
  if (cpu.numel() > 0) as_cpu(made).copy_(cpu);
  return made;
}

void Launch::host_reads() const {
  {
    const std::lock_guard lock(Machine::get().mutex);
    ++Machine::get().counts.host_reads;
  }
  Machine::get().host_waited_for(actor_);
}

void Launch::host_waits() const {
  {
    const std::lock_guard lock(Machine::get().mutex);
    ++Machine::get().counts.host_waits;
  }
  Machine::get().host_waited_for(actor_);
}

at::Tensor as_cpu(const at::Tensor& t) {
  // The tensor is alive as long as its operator runs, so the alias need not own its memory.
  c10::Storage storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(),
                       c10::DataPtr(t.storage().mutable_data(), at::kCPU), nullptr,
                       /*resizable=*/false);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  alias.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  return alias;
}

namespace {

const c10::OperatorHandle& copy_operator() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_copy_from", "");
  return op;
}

constexpr int kFrom = 0, kTo = 1;  // arguments of aten::_copy_from

void copy_within(const at::Tensor& from, const at::Tensor& to) {
  const int source = current_actor(from.device().index());
  const int target = current_actor(to.device().index());
  // Between two devices: on the source's stream, with the other waiting before and after.
  if (source != target) Machine::get().order(target, source);
  const Launch reading(copy_operator(), from.device());
  reading.reads(from, kFrom);
  if (source == target) {
    reading.writes(to, kTo);
  } else {
    Machine::get().order(source, target);
    Launch(copy_operator(), to.device()).writes(to, kTo);
    Machine::get().order(target, source);
  }
  as_cpu(to).copy_(as_cpu(from));
}

void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const Launch launch(copy_operator(), to.device());
  launch.writes(to, kTo);
  as_cpu(to).copy_(from);
  if (!non_blocking) launch.host_waits();
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const Launch launch(copy_operator(), from.device());
  launch.reads(from, kFrom);
  if (!non_blocking || !is_pinned(to.const_data_ptr())) {
    to.copy_(as_cpu(from));
    return launch.host_reads();
  }
  const at::Tensor values = as_cpu(from).to(to.scalar_type(), false, /*copy=*/true);
  if (to.is_contiguous()) std::memset(to.mutable_data_ptr(), 0xff, to.nbytes());
  Machine::get().when_host_knows(launch.actor(), [to, values] { to.copy_(values); });
}

}  // namespace

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (to.numel() == 0) return to;
  if (is_simulated(from) && is_simulated(to)) {
    copy_within(from, to);
  } else if (is_simulated(to)) {
    copy_to_device(from, to, non_blocking);
  } else {
    copy_to_host(from, to, non_blocking);
  }
  return to;
}

}  // namespace pareprop::testing
