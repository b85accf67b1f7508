#pragma once

#include <string_view>

namespace pareprop::distributed {

// What processes divide among them: nothing, the state of the optimizer, or that and the gradients,
// of which each keeps those of its own parameters only. Note [Shares]
enum class Shard { none, state, gradients };

std::string_view name(Shard shard);        // "none", "state", "gradients"
Shard parse_shard(std::string_view text);  // throws std::invalid_argument

}  // namespace pareprop::distributed
