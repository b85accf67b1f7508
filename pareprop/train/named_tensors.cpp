#include "pareprop/train/named_tensors.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

namespace pareprop::train {
namespace {

std::string kind(const at::Tensor& tensor) {
  std::ostringstream text;
  text << at::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return text.str();
}

}  // namespace

io::NamedTensors trained_parameters(const torch::nn::Module& module) {
  io::NamedTensors all;
  std::set<const c10::TensorImpl*> known;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    if (!known.insert(item.value().unsafeGetTensorImpl()).second) continue;
    all.emplace_back(item.key(), item.value());
  }
  return all;
}

io::NamedTensors tensors_of(const io::SafetensorsFile& file) {
  io::NamedTensors all;
  for (const std::string& name : file.names()) all.emplace_back(name, file.tensor(name));
  return all;
}

void copy_named(const io::NamedTensors& from, const io::NamedTensors& into,
                const std::string& what) {
  std::map<std::string, at::Tensor> given(from.begin(), from.end());
  std::vector<at::Tensor> found;
  std::string faults;
  for (const auto& [name, tensor] : into) {
    const auto entry = given.find(name);
    if (entry == given.end()) {
      faults += "\n  " + name + " is missing";
      continue;
    }
    const at::Tensor& value = entry->second;
    if (value.sizes() != tensor.sizes() || value.scalar_type() != tensor.scalar_type()) {
      faults += "\n  " + name + " is " + kind(value) + ", expected " + kind(tensor);
    }
    found.push_back(value);
    given.erase(entry);
  }
  for (const auto& [name, tensor] : given) faults += "\n  " + name + " is not expected";
  if (!faults.empty()) {
    throw std::invalid_argument(what + " does not fit this network and was not loaded:" + faults);
  }
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < into.size(); ++i) into[i].second.copy_(found[i]);
}

}  // namespace pareprop::train
