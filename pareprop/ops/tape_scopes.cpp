#include "pareprop/ops/tape_scopes.h"

namespace pareprop {
namespace {
thread_local bool lean_now = false;
thread_local bool consumed_now = false;
}  // namespace

LeanTapeScope::LeanTapeScope(bool lean) : previous_(lean_now) { lean_now = lean; }
LeanTapeScope::~LeanTapeScope() { lean_now = previous_; }

bool tape_is_lean() { return lean_now; }

ConsumeScope::ConsumeScope(bool consumed) : previous_(consumed_now) { consumed_now = consumed; }
ConsumeScope::~ConsumeScope() { consumed_now = previous_; }

bool tape_is_consumed() { return consumed_now; }

bool only_saved_here(const at::Tensor& unpacked) {
  constexpr std::size_t kSavedAndUnpacked = 2;
  return unpacked.storage().use_count() <= kSavedAndUnpacked;
}

}  // namespace pareprop
