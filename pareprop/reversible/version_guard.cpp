#include "pareprop/reversible/version_guard.h"

#include <stdexcept>

namespace pareprop {

void VersionGuard::add(const at::Tensor& tensor, std::string name) {
  // Detached: the same version counter, but no graph that would keep the tensor's maker alive.
  if (tensor.defined()) entries_.push_back({tensor.detach(), tensor._version(), std::move(name)});
}

void VersionGuard::check() const {
  for (const auto& [tensor, version, name] : entries_) {
    if (tensor._version() == version) continue;
    throw std::runtime_error(
        name + " was changed in place after the forward pass (version " +
        std::to_string(tensor._version()) + ", expected " + std::to_string(version) +
        "): the recomputation would differ. Call backward before you change it");
  }
}

}  // namespace pareprop
