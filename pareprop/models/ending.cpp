#include "pareprop/models/ending.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace pareprop::models {
namespace {

constexpr std::pair<Ending, std::string_view> kNames[] = {
    {Ending::concat, "concat"}, {Ending::sum, "sum"}, {Ending::mean, "mean"},
    {Ending::y1, "y1"},         {Ending::y2, "y2"},   {Ending::sum_minus_x, "sum-x"}};

}  // namespace

Ending parse_ending(std::string_view word) {
  for (const auto& [ending, name] : kNames) {
    if (name == word) return ending;
  }
  std::string all;
  for (const auto& each : kNames) {
    const bool last = &each == std::end(kNames) - 1;
    all.append(all.empty() ? "" : last ? " or " : ", ").append(each.second);
  }
  throw std::invalid_argument("expected " + all + ", got '" + std::string(word) + "'");
}

std::string_view name(Ending ending) {
  const auto* const found = std::find_if(std::begin(kNames), std::end(kNames),
                                         [&](const auto& each) { return each.first == ending; });
  return found->second;
}

std::int64_t features_of(Ending ending, std::int64_t width) {
  return ending == Ending::concat ? 2 * width : width;
}

at::Tensor end_of_streams(Ending ending, const at::Tensor& y1, const at::Tensor& y2,
                          const at::Tensor& x) {
  switch (ending) {
    case Ending::concat:
      return at::cat({y1, y2}, -1);
    case Ending::sum:
      return y1.add(y2);
    case Ending::mean:
      return y1.add(y2).mul_(0.5);
    case Ending::y1:
      return y1;
    case Ending::y2:
      return y2;
    case Ending::sum_minus_x:
      return y1.add(y2).sub_(x);
  }
  throw std::logic_error("an ending that there is not");
}

}  // namespace pareprop::models
