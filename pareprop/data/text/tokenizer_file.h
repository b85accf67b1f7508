#pragma once

#include <filesystem>

#include "pareprop/data/text/tokenizer.h"

namespace pareprop::data {

// A tokenizer.json, or a folder with one, or one with vocab.json and merges.txt; also what Hugging
// Face's tokenizers wrote, when it is a byte-level BPE with RoBERTa's special tokens. Throws
// std::invalid_argument that names the file and what is wrong in it, std::system_error when it
// cannot be read.
Tokenizer load_tokenizer(const std::filesystem::path& path);

// What save_tokenizer() wrote. Its files are compared with one another: std::invalid_argument also
// when one of them was damaged so that it is a tokenizer's still, but another one's.
Tokenizer load_saved_tokenizer(const std::filesystem::path& folder);

// Writes tokenizer.json, tokenizer_config.json, vocab.json and merges.txt into a folder, which is
// made where it is missing: Hugging Face's tokenizers and transformers (AutoTokenizer) load them.
// Each file is whole or not there. Errors as AtomicFile's.
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace pareprop::data
