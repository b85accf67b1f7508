#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/data/text/bpe_merges.h"
#include "pareprop/data/text/bpe_tables.h"

namespace pareprop::data {

// Byte-level BPE, as GPT-2 and RoBERTa have it: every text has tokens, and they are the text.
// Several threads may use one.
class Tokenizer {
 public:
  // Throws std::invalid_argument when a token stands twice, a byte or one of kSpecialTokens is
  // missing, a token cannot be read in the byte alphabet, or a merge names an unknown token, makes
  // one, or stands twice.
  explicit Tokenizer(BpeTables tables);

  // Nothing is added, and no part of the text is a special token, whatever it says: "<mask>" are
  // the characters. Throws std::invalid_argument when the text is not UTF-8.
  std::vector<TokenId> encode(std::string_view text) const;

  // Special tokens are left out: decode(encode(text)) is the text. Ids cut out of the middle may
  // begin or end with a part of a character. Throws std::invalid_argument for an id that is
  // outside of the vocabulary.
  std::string decode(std::span<const TokenId> ids) const;

  std::int64_t size() const { return static_cast<std::int64_t>(tables_.tokens.size()); }
  const BpeTables& tables() const { return tables_; }

  TokenId start() const { return special_[0]; }
  TokenId padding() const { return special_[1]; }
  TokenId end() const { return special_[2]; }
  TokenId unknown() const { return special_[3]; }
  TokenId mask() const { return special_[4]; }
  bool is_special(TokenId id) const { return is_special_[static_cast<std::size_t>(id)]; }

 private:
  BpeTables tables_;
  std::array<TokenId, std::size(kSpecialTokens)> special_{};
  std::vector<bool> is_special_;    // by id
  std::vector<std::string> bytes_;  // by id; empty for special ones
  std::array<TokenId, 256> of_byte_{};
  BpeMerges merges_;
};

}  // namespace pareprop::data
