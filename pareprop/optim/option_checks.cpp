#include "pareprop/optim/option_checks.h"

#include <stdexcept>

namespace pareprop::optim {

void check_option(const std::string& optimizer, const std::string& name, double value, bool holds,
                  const std::string& expected) {
  if (holds) return;
  throw std::invalid_argument(optimizer + ": " + name + " is " + std::to_string(value) +
                              ", expected " + expected);
}

void check_parameter(const std::string& optimizer, const std::string& name,
                     const at::Tensor& parameter, StateKind state) {
  const at::ScalarType type = parameter.scalar_type();
  if (type == at::kFloat || type == at::kBFloat16) return;
  if (type == at::kDouble && state == StateKind::fp32) return;
  const std::string is =
      optimizer + ": parameter " + name + " is " + at::toString(type) + ", expected Float";
  if (type == at::kDouble) {
    throw std::invalid_argument(is + " or BFloat16 for state in " +
                                std::string(optim::name(state)) +
                                "; weights of 64 bits are trained with state in fp32");
  }
  throw std::invalid_argument(is +
                              ", BFloat16 or Double; train with float32 weights and let the "
                              "network compute in half precision");
}

}  // namespace pareprop::optim
