#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pareprop/data/text/bpe_tables.h"
#include "pareprop/data/text/byte_alphabet.h"

namespace pareprop::data::testing {

// Special tokens 0 to 4, byte b as 5 + b, then what the merges make.
inline BpeTables small_tables(
    std::initializer_list<std::pair<std::string, std::string>> merges = {}) {
  BpeTables tables;
  tables.special.assign(std::begin(kSpecialTokens), std::end(kSpecialTokens));
  tables.tokens = tables.special;
  for (int byte = 0; byte < 256; ++byte) {
    tables.tokens.push_back(in_byte_alphabet(std::string(1, static_cast<char>(byte))));
  }
  for (const auto& [left, right] : merges) {
    tables.merges.emplace_back(left, right);
    tables.tokens.push_back(left + right);
  }
  return tables;
}

}  // namespace pareprop::data::testing
