#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pareprop/data/text/bpe_tables.h"

namespace pareprop::data {

// Which neighbours become one token, and which of them first.
class BpeMerges {
 public:
  // False when these two have one already. Those that are added first are better.
  bool add(TokenId left, TokenId right, TokenId result);

  // Merges the best pair of neighbours, the leftmost of equal ones, until there is none:
  // O(n log n) for a word of n tokens.
  void apply(std::vector<TokenId>& word) const;

 private:
  struct Merge {
    std::int32_t rank;
    TokenId result;
  };
  const Merge* find(TokenId left, TokenId right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace pareprop::data
