#include "pareprop/reversible/branch.h"

#include <stdexcept>

namespace pareprop {

void ExtraArguments::missing(std::size_t i) const {
  throw std::invalid_argument(std::string(branch_) + ": the branch asks for extra argument " +
                              std::to_string(i) + ", but the call has " + std::to_string(size()) +
                              "; pass it to forward() in CallOptions::extras");
}

Branch::Branch(BranchFunction function, std::vector<at::Tensor> parameters)
    : function_(std::move(function)) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    own_parameters_.push_back({"parameter " + std::to_string(i), std::move(parameters[i])});
  }
}

Branch::Branch(BranchFunction function, std::vector<NamedParameter> parameters,
               std::vector<NamedParameter> buffers)
    : function_(std::move(function)),
      own_parameters_(std::move(parameters)),
      own_buffers_(std::move(buffers)) {}

Branch::Branch(std::shared_ptr<torch::nn::Module> module, BranchFunction function)
    : function_(std::move(function)), module_(std::move(module)) {}

std::vector<NamedParameter> Branch::parameters() const {
  std::vector<NamedParameter> result = own_parameters_;
  if (module_) {
    for (const auto& item : module_->named_parameters()) {
      result.push_back({item.key(), item.value()});
    }
  }
  return result;
}

std::vector<NamedParameter> Branch::buffers() const {
  std::vector<NamedParameter> result = own_buffers_;
  if (module_) {
    for (const auto& item : module_->named_buffers()) result.push_back({item.key(), item.value()});
  }
  return result;
}

}  // namespace pareprop
