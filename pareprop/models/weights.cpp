#include "pareprop/models/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "pareprop/io/misfits.h"
#include "pareprop/text/escape.h"

namespace pareprop::models {
namespace {

using Shape = std::vector<std::int64_t>;

std::string text(const Shape& shape) {
  std::string result = "[";
  for (const std::int64_t n : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(n);
  return result + "]";
}

bool is_floating(io::SafetensorsDtype dtype) {
  using enum io::SafetensorsDtype;
  return dtype == f16 || dtype == bf16 || dtype == f32 || dtype == f64;
}

bool matches(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  return name.size() + 1 >= pattern.size() && name.starts_with(pattern.substr(0, star)) &&
         name.ends_with(pattern.substr(star + 1));
}

Shape share(const at::Tensor& whole, const NamedParts& named) {
  if (!named.shape.empty()) return named.shape;
  Shape shape = whole.sizes().vec();
  if (!shape.empty()) shape[0] /= static_cast<std::int64_t>(named.parts.size());
  return shape;
}

// What differs, where it is only the number of classes or tokens.
std::string explanation(const std::string& parameter, const Shape& found, const Shape& expected) {
  if (found.size() != expected.size() || found.empty() ||
      !std::equal(found.begin() + 1, found.end(), expected.begin() + 1)) {
    return "";
  }
  const auto numbers = [&](const std::string& things) {
    return ": the network in the file has " + std::to_string(found[0]) + " " + things +
           ", this one has " + std::to_string(expected[0]);
  };
  if (parameter.rfind("head.", 0) == 0) return numbers("classes");
  if (parameter == "embeddings.word" || parameter == "head_bias") return numbers("tokens");
  return "";
}

// Looks through one file for one model; collects what does not fit. Nothing but the header is read,
// where no copies have to be compared.
class Reader {
 public:
  Reader(const io::SafetensorsFile& file, const NameMap& names) : file_(file), names_(names) {}

  // The names of the tensors of the parameter; without those that do not fit.
  std::vector<std::string> parts(const NamedParts& named, const at::Tensor& parameter) {
    const Shape expected = share(parameter, named);
    std::vector<std::string> found;
    for (const auto& alternatives : named.parts) {
      const std::string* name = find(alternatives);
      if (name == nullptr) {
        missing(alternatives, named.parameter);
        continue;
      }
      used_.insert(*name);
      const io::SafetensorsEntry& entry = file_.entry(*name);
      if (!is_floating(entry.dtype)) {
        different(*name + " is " + std::string(io::name(entry.dtype)) +
                  ", expected floating-point numbers");
      } else if (entry.shape != expected) {
        different(*name + " is " + text(entry.shape) + ", expected " + text(expected) +
                  explanation(named.parameter, entry.shape, expected));
      } else {
        found.push_back(*name);
      }
    }
    return found;
  }

  // `parts`: all that the parameter is made of; empty where one does not fit.
  void check_copy(const std::string& name, const std::vector<std::string>& parts) {
    if (!file_.contains(name) || !used_.insert(name).second) return;
    if (!parts.empty() && !is_equal(name, parts)) {
      different(text::printable(name) +
                " differs from the tensor that it shares its values with in this network");
    }
  }

  void check_rest() {
    for (const auto& entry : file_.entries()) {
      const bool allowed =
          used_.count(entry.name) > 0 ||
          std::any_of(names_.ignored.begin(), names_.ignored.end(),
                      [&](const std::string& p) { return matches(entry.name, p); });
      if (!allowed) {
        misfits_.add(io::Misfits::Kind::not_expected,
                     text::printable(entry.name) + " is not expected");
      }
    }
  }

  void finish() const {
    if (misfits_.empty()) return;
    throw std::invalid_argument(file_.path().string() +
                                " does not fit the network; no weight was changed" +
                                misfits_.text());
  }

 private:
  const std::string* find(const std::vector<std::string>& alternatives) const {
    for (const std::string& name : alternatives) {
      if (file_.contains(name)) return &name;
    }
    return nullptr;
  }

  void missing(const std::vector<std::string>& alternatives, const std::string& parameter) {
    std::string all;
    for (const std::string& name : alternatives) all += (all.empty() ? "" : " or ") + name;
    misfits_.add(
        io::Misfits::Kind::missing,
        all + " is missing" + (all == parameter ? "" : " (for the parameter " + parameter + ")"));
  }

  void different(std::string what) { misfits_.add(io::Misfits::Kind::different, std::move(what)); }

  bool is_equal(const std::string& name, const std::vector<std::string>& parts) const {
    if (!is_floating(file_.entry(name).dtype)) return false;
    std::vector<at::Tensor> tensors;
    for (const std::string& part : parts) tensors.push_back(file_.tensor(part));
    const at::Tensor copy = file_.tensor(name), whole = at::cat(tensors, 0);
    return copy.sizes() == whole.sizes() && copy.to(whole.scalar_type()).equal(whole);
  }

  const io::SafetensorsFile& file_;
  const NameMap& names_;
  std::set<std::string> used_;
  io::Misfits misfits_;
};

const NamedParts* find(const NameMap& names, const std::string& parameter) {
  for (const NamedParts& named : names.parameters) {
    if (named.parameter == parameter) return &named;
  }
  return nullptr;
}

io::NamedTensors parameters_of(const Model& model) {
  io::NamedTensors all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value());
  return all;
}

std::invalid_argument unnamed(const std::string& parameter) {
  return std::invalid_argument("the name map does not say what the tensor " + parameter +
                               " is called in the file");
}

}  // namespace

NameMap own_names(const Model& model, const std::string& prefix) {
  NameMap map;
  for (const auto& [name, value] : parameters_of(model)) {
    map.parameters.push_back({.parameter = name, .parts = {{prefix + name}}});
  }
  return map;
}

void load_weights(Model& model, const io::SafetensorsFile& file, const NameMap& names) {
  at::NoGradGuard no_grad;
  if (model.weight_options().device().is_meta()) {
    throw std::invalid_argument("cannot load weights into a network on the meta device");
  }
  file.verify_seal();
  Reader reader(file, names);
  std::vector<std::pair<at::Tensor, std::vector<std::string>>> found;
  const io::NamedTensors parameters = parameters_of(model);
  for (const auto& [name, parameter] : parameters) {
    const NamedParts* named = find(names, name);
    if (named == nullptr) throw unnamed(name);
    found.emplace_back(parameter, reader.parts(*named, parameter));
  }
  for (const auto& [copy, of] : names.copies) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (parameters[i].first != of) continue;
      const auto& parts = found[i].second;
      const bool whole = parts.size() == find(names, of)->parts.size();
      reader.check_copy(copy, whole ? parts : std::vector<std::string>());
    }
  }
  reader.check_rest();
  reader.finish();

  for (auto& [parameter, parts] : found) {
    const at::Tensor flat = parameter.view({static_cast<std::int64_t>(parts.size()), -1});
    for (std::size_t i = 0; i < parts.size(); ++i) {
      file.read_into(parts[i], flat.select(0, static_cast<std::int64_t>(i)));
    }
  }
}

void load_weights(Model& model, const io::SafetensorsFile& file) {
  load_weights(model, file, own_names(model));
}

io::NamedTensors under_names(const io::NamedTensors& ours, const NameMap& names) {
  io::NamedTensors theirs;
  for (const auto& [name, tensor] : ours) {
    const NamedParts* named = find(names, name);
    if (named == nullptr) throw unnamed(name);
    const auto pieces = tensor.detach().chunk(static_cast<std::int64_t>(named->parts.size()), 0);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      theirs.emplace_back(named->parts[i].front(), pieces[i].reshape(share(tensor, *named)));
    }
  }
  return theirs;
}

void save_weights(const Model& model, const std::filesystem::path& path, const NameMap& names,
                  io::SafetensorsMetadata metadata) {
  metadata.insert(names.metadata.begin(), names.metadata.end());
  io::write_sealed_safetensors(path, under_names(parameters_of(model), names), metadata);
}

void save_weights(const Model& model, const std::filesystem::path& path) {
  save_weights(model, path, own_names(model));
}

}  // namespace pareprop::models
