#include "tests/ops/host_reads.h"

#include <ATen/record_function.h>

#include <atomic>
#include <string_view>

namespace pareprop::testing {
namespace {

std::atomic<std::int64_t> reads{0};

// The CPU's kernel of AdamW reads how many steps each parameter has had; an accelerator's does not.
constexpr std::string_view kReadsOnTheCpuOnly = "aten::_fused_adamw_";
thread_local int excused = 0;

void end_excuse(const at::RecordFunction& call, at::ObserverContext*) {
  if (call.name() == kReadsOnTheCpuOnly) --excused;
}

std::unique_ptr<at::ObserverContext> see_read(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  if (name == kReadsOnTheCpuOnly) ++excused;
  if (excused > 0) return nullptr;
  for (const std::string_view read :
       {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select",
        "aten::_unique2", "aten::unique_dim"}) {
    if (name == read) ++reads;
  }
  return nullptr;
}

}  // namespace

HostReads::HostReads() {
  reads = 0;
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(&see_read, &end_excuse).scopes({at::RecordScope::FUNCTION}));
}

HostReads::~HostReads() { at::removeCallback(handle_); }

std::int64_t HostReads::count() const { return reads; }

}  // namespace pareprop::testing
