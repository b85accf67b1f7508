#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pareprop/data/counter_random.h"
#include "pareprop/data/text/tokenizer.h"

namespace pareprop::data {

// Targets of positions that are not scored.
inline constexpr std::int64_t kNotScored = -100;

// Share of a sequence's tokens that are to be guessed.
inline constexpr double kMaskedShare = 0.15;

// What a masked language model has to guess: 15 % of a sequence's tokens (rounded up or down at
// random, at least one), never special ones. Of these 80 % become <mask>, 10 % another token, any
// but a special one, and 10 % stay.
class TokenMasking {
 public:
  explicit TokenMasking(const Tokenizer& tokenizer);

  // `target` gets the tokens that were chosen, kNotScored elsewhere. Equal sizes.
  void apply(CounterRandom random, std::span<std::int64_t> input,
             std::span<std::int64_t> target) const;

 private:
  std::vector<bool> is_special_;   // by id
  std::vector<TokenId> ordinary_;  // ids of the others
  TokenId mask_;
};

}  // namespace pareprop::data
