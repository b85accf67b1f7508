#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "pareprop/data/text/tokenizer.h"

namespace pareprop::data {

// What stands in a text where a word is to be guessed.
inline constexpr std::string_view kMaskText = "<mask>";

// The ids of "It was <mask>.", with <s> and </s> around them, as Hugging Face's RoBERTa tokenizers
// give them: the mask stands for a word together with the white space before it, which is left out.
// Throws std::invalid_argument when the text is not UTF-8.
std::vector<std::int64_t> encode_masked(const Tokenizer& tokenizer, std::string_view text);

}  // namespace pareprop::data
