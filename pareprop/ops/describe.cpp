#include "pareprop/ops/describe.h"

namespace pareprop {

std::string describe(const at::Tensor& t) {
  if (!t.defined()) return "an undefined tensor";
  std::string text = std::string(c10::toString(t.scalar_type())) + " [";
  for (std::int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
  return text + "] on " + t.device().str();
}

}  // namespace pareprop
