#include "pareprop/optim/decays.h"

namespace pareprop::optim {

bool decays(std::string_view name, const at::Tensor& parameter) {
  if (parameter.dim() <= 1) return false;
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const std::string_view word : {"bias", "pos_", "position", "cls_token"}) {
    if (last.find(word) != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace pareprop::optim
