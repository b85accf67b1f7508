#include "pareprop/ops/consumed_tape.h"

namespace pareprop {
namespace {
thread_local bool consumed_now = false;
}

ConsumeScope::ConsumeScope(bool consumed) : previous_(consumed_now) { consumed_now = consumed; }
ConsumeScope::~ConsumeScope() { consumed_now = previous_; }

bool tape_is_consumed() { return consumed_now; }

bool only_saved_here(const at::Tensor& unpacked) {
  constexpr std::size_t kSavedAndUnpacked = 2;
  return unpacked.storage().use_count() <= kSavedAndUnpacked;
}

}  // namespace pareprop
