#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/data/text/tokenizer.h"

namespace pareprop::data {

struct TextOptions {
  std::filesystem::path tokenizer = {};  // as load_tokenizer() takes it; empty: one is trained
  std::int64_t vocabulary = 4096;        // of the one that is trained
  std::int64_t min_frequency = 2;        // of its merges
};

// A text as tokens: all files joined, </s> between them. The end of each file is held out
// (held_out_begin; held_out_word where that holds nothing out of any file), and the tokenizer is
// trained without it.
struct TextData {
  Tokenizer tokenizer;
  std::vector<TokenId> train;
  std::vector<TokenId> held_out;
  std::vector<std::string> left_out = {};  // one line each: files that could not be read
};

// `spec` is "persuasion", Jane Austen's novel, which is part of the library; or the path of a text
// file or of a folder of *.txt, which may be written "text:PATH". Throws what read_text_files(),
// train_bpe() and load_tokenizer() throw.
TextData open_text(std::string_view spec, const TextOptions& options = {});

// Nats per token of the best guess that knows how often each token stands in the text and nothing
// else: a model that learns anything gets below it.
double unigram_entropy(std::span<const TokenId> tokens);

}  // namespace pareprop::data
