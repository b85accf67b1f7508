#include "pareprop/data/text/token_masking.h"

#include <algorithm>
#include <utility>

namespace pareprop::data {
namespace {

constexpr double kMasked = 0.8;    // of those scored
constexpr double kReplaced = 0.1;  // of those scored

}  // namespace

TokenMasking::TokenMasking(const Tokenizer& tokenizer) : mask_(tokenizer.mask()) {
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    is_special_.push_back(tokenizer.is_special(id));
    if (!is_special_.back()) ordinary_.push_back(id);
  }
}

void TokenMasking::apply(CounterRandom random, std::span<std::int64_t> input,
                         std::span<std::int64_t> target) const {
  std::fill(target.begin(), target.end(), kNotScored);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (!is_special_[static_cast<std::size_t>(input[i])]) places.push_back(i);
  }
  if (places.empty()) return;
  const double wanted = kMaskedShare * static_cast<double>(places.size()) + random.uniform();
  const auto count = std::clamp<std::size_t>(static_cast<std::size_t>(wanted), 1, places.size());
  for (std::size_t k = 0; k < count; ++k) {
    std::swap(places[k], places[k + random.below(places.size() - k)]);
    const std::size_t place = places[k];
    target[place] = input[place];
    const double draw = random.uniform();
    if (draw < kMasked) {
      input[place] = mask_;
    } else if (draw < kMasked + kReplaced) {
      input[place] = ordinary_[random.below(ordinary_.size())];
    }
  }
}

}  // namespace pareprop::data
