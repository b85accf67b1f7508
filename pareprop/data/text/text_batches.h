#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/data/batches.h"
#include "pareprop/data/text/token_masking.h"
#include "pareprop/data/text/tokenizer.h"

namespace pareprop::data {

struct TextBatchesOptions {
  std::int64_t batch = 32;    // sequences of a batch, in each process
  std::int64_t length = 128;  // tokens of a sequence, <s> and </s> included
  bool training = true;       // false: every sequence once, in order, masked the same in each epoch
  std::uint64_t seed = 0;     // of the order and the masks of training
  Shard shard = {};
};

// Sequences <s> ... </s> out of one long text, one after the other without gaps, with tokens masked
// that are to be guessed (TokenMasking). In training they come in another order and with other
// masks in each epoch, and tokens after the last whole sequence are left out. In evaluation the
// last sequence is padded, the last batch smaller, for some ranks empty.
class TextBatches final : public Batches {
 public:
  // Throws std::invalid_argument when an option is out of range, or the text is too short for one
  // batch of all processes (training) or is empty (evaluation).
  TextBatches(std::vector<TokenId> text, const Tokenizer& tokenizer,
              const TextBatchesOptions& options);

  std::int64_t per_epoch() const override;
  Batch make(std::int64_t number) const override;

  // Of the whole text.
  std::int64_t sequences() const { return sequences_; }

 private:
  std::vector<TokenId> text_;
  TextBatchesOptions options_;
  TokenMasking masking_;
  TokenId start_;
  TokenId end_;
  TokenId padding_;
  std::int64_t sequences_;
};

}  // namespace pareprop::data
