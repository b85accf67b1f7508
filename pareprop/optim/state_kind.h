#pragma once

#include <string_view>

namespace pareprop::optim {

// What the state of an optimizer is kept in between two steps; it computes in float32. bf16 and
// eight_bit are rounded at random, up or down so that the mean is right (optim/moment.h).
enum class StateKind { fp32, bf16, eight_bit };

std::string_view name(StateKind kind);              // "fp32", "bf16", "8bit"
StateKind parse_state_kind(std::string_view text);  // throws std::invalid_argument

}  // namespace pareprop::optim
