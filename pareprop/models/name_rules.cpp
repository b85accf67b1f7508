#include "pareprop/models/name_rules.h"

#include <cctype>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "pareprop/models/image_model.h"

namespace pareprop::models {
namespace {

using Places = std::vector<std::string>;

constexpr std::int64_t kMostRows = std::int64_t{1} << 40;  // of a part; more is no network's

// What was in the places of #, ^ and *, in their order; none where the name is another.
std::optional<Places> fits(const std::string& name, const std::string& rule) {
  Places places;
  std::size_t at = 0;
  for (const char c : rule) {
    if (c == '*') {
      places.push_back(name.substr(at));
      return places;
    }
    if (c == '#' || c == '^') {
      const std::size_t begin = at;
      while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at]))) ++at;
      constexpr std::size_t kMostDigits = 6;
      if (at == begin || at - begin > kMostDigits) return std::nullopt;
      const std::string digits = name.substr(begin, at - begin);
      if (c == '^' && std::stoi(digits) == 0) return std::nullopt;
      places.push_back(c == '#' ? digits : std::to_string(std::stoi(digits) - 1));
    } else if (at >= name.size() || name[at++] != c) {
      return std::nullopt;
    }
  }
  if (at != name.size()) return std::nullopt;
  return places;
}

std::string filled(const std::string& rule, const Places& places) {
  std::string name;
  std::size_t next = 0;
  for (const char c : rule) {
    if (c == '#' || c == '*') {
      name += places.at(next++);
    } else if (c == '^') {
      name += std::to_string(std::stoi(places.at(next++)) + 1);
    } else {
      name += c;
    }
  }
  return name;
}

NamedParts parts_of(const std::string& parameter, const Rules& rules) {
  for (const Rule& rule : rules) {
    const auto places = fits(parameter, rule.ours);
    if (!places) continue;
    NamedParts named{.parameter = parameter, .parts = rule.theirs};
    for (auto& alternatives : named.parts) {
      for (std::string& name : alternatives) name = filled(name, *places);
    }
    return named;
  }
  throw std::logic_error("no rule for the name of the parameter " + parameter);
}

// Theirs is a convolution: (width, channels, patch, patch).
std::vector<std::int64_t> convolution(const at::Tensor& linear, std::int64_t channels) {
  const auto patch = std::llround(std::sqrt(static_cast<double>(linear.size(1) / channels)));
  return {linear.size(0), channels, patch, patch};
}

}  // namespace

Rule same(std::string ours, std::string theirs) { return {std::move(ours), {{std::move(theirs)}}}; }
Rule either(std::string ours, std::string written, std::string other) {
  return {std::move(ours), {{std::move(written), std::move(other)}}};
}

NameMap names_of(const Model& model, const Naming& naming) {
  NameMap map{.parameters = {},
              .ignored = naming.ignored,
              .copies = naming.copies,
              .metadata = {{"format", "pt"}}};
  const auto* image = dynamic_cast<const ImageModel*>(&model);
  for (const auto& item : model.named_parameters()) {
    map.parameters.push_back(parts_of(item.key(), naming.rules));
    const bool linear = item.key() == "patch_embed.weight" && item.value().dim() == 2;
    if (image != nullptr && linear) {
      map.parameters.back().shape = convolution(item.value(), image->shape().channels);
    }
  }
  return map;
}

Shapes shapes_under_own_names(const io::TensorFiles& files, const Naming& naming) {
  Shapes shapes;
  const auto add = [&](const io::SafetensorsEntry& entry) {
    for (const Rule& rule : naming.rules) {
      for (const auto& alternatives : rule.theirs) {
        for (const std::string& pattern : alternatives) {
          const auto places = fits(entry.name, pattern);
          if (!places) continue;
          auto shape = entry.shape;
          const auto parts = static_cast<std::int64_t>(rule.theirs.size());
          if (!shape.empty() && shape[0] <= kMostRows) shape[0] *= parts;
          shapes.try_emplace(filled(rule.ours, *places), std::move(shape));
          return;
        }
      }
    }
  };
  for (const io::SafetensorsEntry* entry : files.entries()) add(*entry);
  return shapes;
}

Shapes shapes_of(const io::TensorFiles& files) {
  Shapes shapes;
  for (const io::SafetensorsEntry* entry : files.entries()) shapes[entry->name] = entry->shape;
  return shapes;
}

}  // namespace pareprop::models
