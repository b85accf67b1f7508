#pragma once

#include <string>
#include <string_view>

#include "pareprop/data/text/bpe_tables.h"

namespace pareprop::data {

// The files of byte-level BPE tokenizers as text. What is read is not compared with itself yet, but
// every id from 0 to the last has one token; Tokenizer checks the rest. Errors are
// std::invalid_argument.

// tokenizer.json of Hugging Face's tokenizers. Settings that would give other tokens than Tokenizer
// does are refused: another model or pre-tokenizer, a normalizer, dropout, prefixes, suffixes.
BpeTables parse_tokenizer_json(std::string_view text);
// With RoBERTa's post-processor: tokenizers puts <s> and </s> around what it encodes.
std::string format_tokenizer_json(const BpeTables& tables);
// tokenizer_config.json beside it, by which transformers' AutoTokenizer knows what it is.
std::string format_tokenizer_config_json();

// The older vocab.json and merges.txt. Those of kSpecialTokens that are there are special.
BpeTables parse_vocabulary(std::string_view vocab_json, std::string_view merges_txt);
std::string format_vocab_json(const BpeTables& tables);
std::string format_merges_txt(const BpeTables& tables);

}  // namespace pareprop::data
