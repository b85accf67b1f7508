#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pareprop::data {

using TokenId = std::int32_t;

// What a byte-level BPE tokenizer is made of, as its files hold it: Tokenizer checks it.
struct BpeTables {
  // By id. Written in the byte alphabet, but special ones as they are.
  std::vector<std::string> tokens;
  // Best first.
  std::vector<std::pair<std::string, std::string>> merges;
  // Those of the tokens that text never becomes, like "<mask>".
  std::vector<std::string> special;

  bool operator==(const BpeTables&) const = default;
};

// RoBERTa's, in the order in which training numbers them: 0 to 4.
inline constexpr std::string_view kSpecialTokens[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};

}  // namespace pareprop::data
