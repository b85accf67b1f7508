#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "pareprop/data/text/bpe_tables.h"

namespace pareprop::data {

struct BpeTrainerOptions {
  std::int64_t vocabulary = 30000;  // tokens at most, special ones and bytes included
  std::int64_t min_frequency = 2;   // a pair that is rarer is not merged
};

// Learns the merges of a byte-level BPE: the most frequent pair of neighbours inside a word becomes
// a token, of equal ones that with the smaller ids, until the vocabulary is full or every pair is
// too rare. Special tokens have the ids 0 to 4, the bytes the next 256. Lines are taken one by one,
// with their "\n", so that no word goes over the end of one.
//
// Gives the tokens and merges that ByteLevelBPETokenizer of Hugging Face's tokenizers 0.23 gives
// for the same files. They could differ where a text has characters that are newer than
// unicode_class(); and where a token can be made of two different pairs and one of them is found
// again after it was merged, if both implementations then take entries of equal count and pair in
// another order.
//
// Throws std::invalid_argument for a vocabulary that has no room for the special tokens and bytes,
// a frequency below 1, texts that are empty or not UTF-8.
BpeTables train_bpe(std::span<const std::string_view> texts, const BpeTrainerOptions& options);

}  // namespace pareprop::data
