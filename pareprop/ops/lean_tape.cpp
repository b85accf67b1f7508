#include "pareprop/ops/lean_tape.h"

namespace pareprop {
namespace {
thread_local bool lean_now = false;
}

LeanTapeScope::LeanTapeScope(bool lean) : previous_(lean_now) { lean_now = lean; }
LeanTapeScope::~LeanTapeScope() { lean_now = previous_; }

bool tape_is_lean() { return lean_now; }

}  // namespace pareprop
