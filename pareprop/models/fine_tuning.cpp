#include "pareprop/models/fine_tuning.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "pareprop/text/wildcard.h"

namespace pareprop::models {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

[[noreturn]] void refuse_pattern(std::string_view pattern, const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  std::string nearest;
  for (const std::string& name : text::nearest_to_pattern(pattern, names, kNamed)) {
    nearest += (nearest.empty() ? "" : ", ") + name;
  }
  throw std::invalid_argument("no parameter fits '" + std::string(pattern) + "'; the nearest are " +
                              nearest + " (a * stands for any characters, as in blocks.0.*)");
}

}  // namespace

std::vector<std::string> parameter_names(const Model& model) {
  std::vector<std::string> names;
  for (const auto& parameter : model.named_parameters()) names.push_back(parameter.key());
  return names;
}

void freeze(Model& model, std::string_view patterns) {
  const std::vector<std::string> names = parameter_names(model);
  std::map<std::string, bool> frozen;
  for (const std::string_view word : split(patterns, ',')) {
    const bool takes_out = word.starts_with('!');
    const std::string_view pattern = takes_out ? word.substr(1) : word;
    bool any = false;
    for (const std::string& name : names) {
      if (!text::fits(pattern, name)) continue;
      frozen[name] = !takes_out;
      any = true;
    }
    if (!any) refuse_pattern(pattern, names);
  }
  const auto trains = [&](const std::string& name) { return !frozen[name]; };
  if (std::none_of(names.begin(), names.end(), trains)) {
    throw std::invalid_argument("'" + std::string(patterns) +
                                "' freezes everything: expected a parameter that is trained, as "
                                "the head in '*,!head*'");
  }
  model.train_only(trains);
}

bool is_of_head(std::string_view parameter) { return parameter.starts_with("head"); }

namespace {

// Where a parameter is: in a block of a stage, or in what leads to the first block of the stage or
// follows the last.
struct Place {
  int stage = 0;
  int block = 0;

  auto operator<=>(const Place&) const = default;
};
constexpr int kTransition = -1, kBehind = 1 << 30;

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// None: before or behind all blocks.
std::optional<Place> place_of(std::string_view name) {
  std::vector<std::string_view> words = split(name, '.');
  Place place;
  if (words.size() > 2 && words[0] == "stages" && number(words[1])) {
    place.stage = *number(words[1]);
    words.erase(words.begin(), words.begin() + 2);
    place.block = kBehind;
    if (words[0] == "transition") place.block = kTransition;
  } else if (words[0] != "blocks") {
    return std::nullopt;
  }
  if (words.size() > 1 && words[0] == "blocks" && number(words[1])) place.block = *number(words[1]);
  return place;
}

bool is_before_blocks(std::string_view name) {
  return !is_of_head(name) && !name.starts_with("norm");
}

}  // namespace

Layers layers_of(const std::vector<std::string>& names, const std::vector<std::string>& all) {
  std::map<Place, int> numbers;
  for (const std::string& name : all) {
    const auto place = place_of(name);
    if (place && place->block != kBehind) numbers[*place] = 0;
  }
  if (numbers.empty()) {
    throw std::invalid_argument(
        "expected a network whose parameters are those of blocks, such as blocks.0.f.norm.weight");
  }
  int last = 0;
  for (auto& [place, own] : numbers) own = ++last;
  Layers layers{.of = {}, .last = last + 1};
  for (const std::string& name : names) {
    const auto place = place_of(name);
    if (!place) {
      layers.of.push_back(is_before_blocks(name) ? 0 : layers.last);
    } else if (place->block == kBehind && numbers.contains({place->stage, kTransition})) {
      layers.of.push_back(numbers.at({place->stage, kTransition}));  // what leads to it
    } else {
      // Of the stage's last block, where it is not a block itself.
      const auto above = numbers.upper_bound(*place);
      layers.of.push_back(above == numbers.begin() ? 0 : std::prev(above)->second);
    }
  }
  return layers;
}

}  // namespace pareprop::models
