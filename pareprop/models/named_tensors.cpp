#include "pareprop/models/named_tensors.h"

#include <ATen/core/grad_mode.h>

#include <set>
#include <sstream>
#include <stdexcept>

#include "pareprop/io/misfits.h"
#include "pareprop/text/escape.h"

namespace pareprop::models {
namespace {

std::string kind(at::ScalarType type, at::IntArrayRef sizes) {
  std::ostringstream text;
  text << at::toString(type) << " " << sizes;
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

void copy_named(const io::SafetensorsFile& from, const io::NamedTensors& into,
                const std::string& what) {
  from.verify_seal();
  std::set<std::string> given;
  for (const std::string& name : from.names()) given.insert(name);
  io::Misfits misfits;
  for (const auto& [name, tensor] : into) {
    if (given.erase(name) == 0) {
      misfits.add(io::Misfits::Kind::missing, name + " is missing");
      continue;
    }
    const io::SafetensorsEntry& entry = from.entry(name);
    const at::ScalarType type = io::torch_type(entry.dtype);
    if (tensor.sizes() != entry.shape || tensor.scalar_type() != type) {
      misfits.add(io::Misfits::Kind::different, name + " is " + kind(type, entry.shape) +
                                                    ", expected " +
                                                    kind(tensor.scalar_type(), tensor.sizes()));
    }
  }
  for (const std::string& name : given) {
    misfits.add(io::Misfits::Kind::not_expected, text::printable(name) + " is not expected");
  }
  if (!misfits.empty()) {
    throw std::invalid_argument(what + " does not fit this network and was not loaded" +
                                misfits.text());
  }
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : into) from.read_into(name, tensor);
}

}  // namespace pareprop::models
