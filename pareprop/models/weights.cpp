#include "pareprop/models/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "pareprop/io/misfits.h"
#include "pareprop/models/adapt.h"
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

const NamedParts* find(const NameMap& names, const std::string& parameter) {
  for (const NamedParts& named : names.parameters) {
    if (named.parameter == parameter) return &named;
  }
  return nullptr;
}

// Where a parameter comes from.
struct Origin {
  std::vector<std::string> parts;                     // tensors; without those that do not fit
  std::function<at::Tensor(const at::Tensor&)> make;  // of the only part; null: as it is
  bool stays = false;                                 // the parameter stays as it was made
};

// Looks through one file for one model; collects what does not fit. Nothing but the header is read,
// where no copies have to be compared.
class Reader {
 public:
  Reader(const io::TensorFiles& files, const NameMap& names) : files_(files), names_(names) {}

  // From now on, what differs is adapted where it can be.
  void adapt(const Adapter& adapter, const AdaptOptions& options,
             const io::NamedTensors& parameters) {
    adapter_ = &adapter;
    class_order_ = options.class_order;
    decide_head(options, parameters);
  }

  Origin origin(const NamedParts& named, const at::Tensor& parameter) {
    if (new_head_ && adapter_->is_head(named.parameter)) {
      for (const auto& alternatives : named.parts) {
        if (const std::string* name = find(alternatives)) used_.insert(*name);
      }
      return {.parts = {}, .make = nullptr, .stays = true};
    }
    const Shape expected = share(parameter, named);
    Origin origin;
    for (const auto& alternatives : named.parts) {
      const std::string* name = find(alternatives);
      if (name == nullptr) {
        missing(alternatives, named.parameter);
        continue;
      }
      used_.insert(*name);
      const io::SafetensorsEntry& entry = files_.entry(*name);
      if (!is_floating(entry.dtype)) {
        different(*name + " is " + std::string(io::name(entry.dtype)) +
                  ", expected floating-point numbers");
      } else if (entry.shape == expected) {
        origin.parts.push_back(*name);
      } else if (auto adapted = adaptation(named, entry.shape, expected)) {
        origin.parts.push_back(*name);
        origin.make = std::move(adapted->make);
        said_.try_emplace(adapted->what, said_.size());
      } else {
        different(*name + " is " + text(entry.shape) + ", expected " + text(expected) +
                  explanation(named.parameter, entry.shape, expected));
      }
    }
    if (adapter_ != nullptr && adapter_->is_head(named.parameter) && !class_order_.empty()) {
      origin.make = [order = at::tensor(class_order_)](const at::Tensor& head) {
        return head.index_select(0, order);
      };
    }
    return origin;
  }

  Adapted adapted() const {
    Adapted adapted{.what = std::vector<std::string>(said_.size()), .new_head = new_head_};
    for (const auto& [what, number] : said_) adapted.what[number] = what;
    return adapted;
  }

  // `parts`: all that the parameter is made of; empty where one does not fit.
  void check_copy(const std::string& name, const std::vector<std::string>& parts) {
    if (!files_.contains(name) || !used_.insert(name).second) return;
    if (!parts.empty() && !is_equal(name, parts)) {
      different(text::printable(name) +
                " differs from the tensor that it shares its values with in this network");
    }
  }

  void check_rest() {
    for (const io::SafetensorsEntry* entry : files_.entries()) {
      const bool allowed =
          used_.count(entry->name) > 0 ||
          std::any_of(names_.ignored.begin(), names_.ignored.end(),
                      [&](const std::string& p) { return matches(entry->name, p); });
      if (!allowed) {
        misfits_.add(io::Misfits::Kind::not_expected,
                     text::printable(entry->name) + " is not expected");
      }
    }
  }

  void finish() const {
    if (misfits_.empty()) return;
    throw std::invalid_argument(files_.path().string() +
                                " does not fit the network; no weight was changed" +
                                misfits_.text());
  }

 private:
  const std::string* find(const std::vector<std::string>& alternatives) const {
    for (const std::string& name : alternatives) {
      if (files_.contains(name)) return &name;
    }
    return nullptr;
  }

  std::optional<Adaptation> adaptation(const NamedParts& named, const Shape& theirs,
                                       const Shape& ours) const {
    if (adapter_ == nullptr || named.parts.size() != 1) return std::nullopt;
    return adapter_->adaptation(named.parameter, theirs, ours);
  }

  // Whether the file has a head for this network's classes.
  void decide_head(const AdaptOptions& options, const io::NamedTensors& parameters) {
    bool found = false;
    std::int64_t theirs = 0, ours = 0;  // classes
    for (const auto& [name, parameter] : parameters) {
      if (!adapter_->is_head(name)) continue;
      const NamedParts* named = models::find(names_, name);
      const std::string* in_file =
          named != nullptr && named->parts.size() == 1 ? find(named->parts.front()) : nullptr;
      if (in_file == nullptr) continue;
      found = true;
      const Shape& shape = files_.entry(*in_file).shape;
      const bool of_classes = name == "head.weight" || name == "head_out.weight";
      if (!of_classes || shape.size() != 2 || shape[1] != parameter.size(1)) continue;
      theirs = shape[0];
      ours = parameter.size(0);
    }
    if (!found) {
      say_new_head("no head in the file: a new one is made from the seed");
    } else if (theirs != ours) {
      say_new_head("head for " + std::to_string(theirs) + " classes replaced by a new one for " +
                   std::to_string(ours) + ", made from the seed");
    } else if (options.new_head) {
      say_new_head("head replaced by a new one, made from the seed: the classes have other names");
    }
  }

  void say_new_head(const std::string& why) {
    new_head_ = true;
    said_.try_emplace(why, said_.size());
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
    if (!is_floating(files_.entry(name).dtype)) return false;
    std::vector<at::Tensor> tensors;
    for (const std::string& part : parts) tensors.push_back(files_.tensor(part));
    const at::Tensor copy = files_.tensor(name), whole = at::cat(tensors, 0);
    return copy.sizes() == whole.sizes() && copy.to(whole.scalar_type()).equal(whole);
  }

  const io::TensorFiles& files_;
  const NameMap& names_;
  const Adapter* adapter_ = nullptr;  // null: nothing is adapted
  std::vector<std::int64_t> class_order_;
  bool new_head_ = false;
  std::map<std::string, std::size_t> said_;  // and when
  std::set<std::string> used_;
  io::Misfits misfits_;
};

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

namespace {

Adapted load(Model& model, const io::TensorFiles& files, const NameMap& names,
             const AdaptOptions* options) {
  at::NoGradGuard no_grad;
  if (model.weight_options().device().is_meta()) {
    throw std::invalid_argument("cannot load weights into a network on the meta device");
  }
  files.verify_seals();
  Reader reader(files, names);
  const Adapter adapter(model);
  const io::NamedTensors parameters = parameters_of(model);
  if (options != nullptr) reader.adapt(adapter, *options, parameters);
  std::vector<Origin> origins;
  for (const auto& [name, parameter] : parameters) {
    const NamedParts* named = find(names, name);
    if (named == nullptr) throw unnamed(name);
    origins.push_back(reader.origin(*named, parameter));
  }
  for (const auto& [copy, of] : names.copies) {
    for (std::size_t i = 0; i < origins.size(); ++i) {
      if (parameters[i].first != of) continue;
      const auto& parts = origins[i].parts;
      const bool whole = parts.size() == find(names, of)->parts.size();
      reader.check_copy(copy, whole ? parts : std::vector<std::string>());
    }
  }
  reader.check_rest();
  reader.finish();

  for (std::size_t n = 0; n < origins.size(); ++n) {
    const auto& [parts, make, stays] = origins[n];
    const at::Tensor& parameter = parameters[n].second;
    if (stays) continue;
    if (make) {
      parameter.copy_(make(files.tensor(parts.front())).reshape(parameter.sizes()));
      continue;
    }
    const at::Tensor flat = parameter.view({static_cast<std::int64_t>(parts.size()), -1});
    for (std::size_t i = 0; i < parts.size(); ++i) {
      files.read_into(parts[i], flat.select(0, static_cast<std::int64_t>(i)));
    }
  }
  return reader.adapted();
}

}  // namespace

void load_weights(Model& model, const io::TensorFiles& files, const NameMap& names) {
  load(model, files, names, nullptr);
}

void load_weights(Model& model, const io::SafetensorsFile& file, const NameMap& names) {
  load_weights(model, io::TensorFiles(file), names);
}

void load_weights(Model& model, const io::SafetensorsFile& file) {
  load_weights(model, file, own_names(model));
}

Adapted load_adapted(Model& model, const io::TensorFiles& files, const NameMap& names,
                     const AdaptOptions& options) {
  return load(model, files, names, &options);
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
