#include "pareprop/optim/state_kind.h"

#include <stdexcept>
#include <string>

namespace pareprop::optim {

std::string_view name(StateKind kind) {
  switch (kind) {
    case StateKind::fp32:
      return "fp32";
    case StateKind::bf16:
      return "bf16";
    case StateKind::eight_bit:
      return "8bit";
  }
  return "?";
}

StateKind parse_state_kind(std::string_view text) {
  for (const StateKind kind : {StateKind::fp32, StateKind::bf16, StateKind::eight_bit}) {
    if (text == name(kind)) return kind;
  }
  throw std::invalid_argument("expected fp32, bf16 or 8bit, got '" + std::string(text) + "'");
}

}  // namespace pareprop::optim
