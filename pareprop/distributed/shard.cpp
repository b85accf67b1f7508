#include "pareprop/distributed/shard.h"

#include <stdexcept>
#include <string>

namespace pareprop::distributed {

std::string_view name(Shard shard) {
  switch (shard) {
    case Shard::none:
      return "none";
    case Shard::state:
      return "state";
    case Shard::gradients:
      return "gradients";
  }
  return "?";
}

Shard parse_shard(std::string_view text) {
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients}) {
    if (text == name(shard)) return shard;
  }
  throw std::invalid_argument("expected none, state or gradients, got '" + std::string(text) + "'");
}

}  // namespace pareprop::distributed
