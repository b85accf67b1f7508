#include "pareprop/io/misfits.h"

#include <algorithm>
#include <cstddef>

namespace pareprop::io {
namespace {

constexpr std::size_t kExamples = 5;

using enum Misfits::Kind;
constexpr std::pair<Misfits::Kind, const char*> kKinds[] = {
    {different, "have a different shape, type or content"},
    {missing, "are missing"},
    {not_expected, "are not expected"}};

}  // namespace

std::string Misfits::text() const {
  std::string text = ":";
  // A line that says "and 1 more" could as well be the one.
  if (all_.size() <= kExamples + 1) {
    for (const auto& [kind, what] : all_) text += "\n  " + what;
    return text;
  }
  std::vector<std::vector<const std::string*>> of_kind;
  for (const auto& [kind, words] : kKinds) {
    auto& found = of_kind.emplace_back();
    for (const auto& [each, what] : all_) {
      if (each == kind) found.push_back(&what);
    }
    if (found.empty()) continue;
    text += (text.size() > 1 ? ", " : " ") + std::to_string(found.size()) +
            (text.size() > 1 ? " " : " tensors ") + words;
  }
  text += "; for example";
  // Of each kind in turn: the first of one kind alone may not show what is wrong.
  std::size_t shown = 0;
  for (std::size_t i = 0; shown < kExamples; ++i) {
    for (const auto& found : of_kind) {
      if (i >= found.size() || shown == kExamples) continue;
      text += "\n  " + *found[i];
      ++shown;
    }
  }
  return text + "\n  and " + std::to_string(all_.size() - shown) + " more";
}

}  // namespace pareprop::io
