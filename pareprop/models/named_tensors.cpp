#include "pareprop/models/named_tensors.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

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
  copy_named(c10::ArrayRef<io::SafetensorsFile>(from), into, what,
             [](const std::string&) { return true; });
}

void copy_named(c10::ArrayRef<io::SafetensorsFile> from, const io::NamedTensors& into,
                const std::string& what, const std::function<bool(const std::string&)>& concerns) {
  std::map<std::string, const io::SafetensorsFile*> given;
  for (const io::SafetensorsFile& file : from) {
    file.verify_seal();
    for (const std::string& name : file.names()) given[name] = &file;
  }
  io::Misfits misfits;
  std::vector<const io::SafetensorsFile*> sources;  // one a tensor
  for (const auto& [name, tensor] : into) {
    const auto found = given.extract(name);
    if (found.empty()) {
      misfits.add(io::Misfits::Kind::missing, name + " is missing");
      continue;
    }
    sources.push_back(found.mapped());
    const io::SafetensorsEntry& entry = sources.back()->entry(name);
    const at::ScalarType type = io::torch_type(entry.dtype);
    if (tensor.sizes() != entry.shape || tensor.scalar_type() != type) {
      misfits.add(io::Misfits::Kind::different, name + " is " + kind(type, entry.shape) +
                                                    ", expected " +
                                                    kind(tensor.scalar_type(), tensor.sizes()));
    }
  }
  for (const auto& [name, file] : given) {
    if (!concerns(name)) continue;
    misfits.add(io::Misfits::Kind::not_expected, text::printable(name) + " is not expected");
  }
  if (!misfits.empty()) {
    throw std::invalid_argument(what + " does not fit this network and was not loaded" +
                                misfits.text());
  }
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < into.size(); ++i) {
    sources[i]->read_into(into[i].first, into[i].second);
  }
}

}  // namespace pareprop::models
