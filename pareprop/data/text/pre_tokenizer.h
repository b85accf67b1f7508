#pragma once

#include <cstddef>
#include <string_view>

namespace pareprop::data {

// The words that byte pairs are merged in, as GPT-2 cuts them:
//   's 't 're 've 'm 'll 'd | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ |\s+(?!\S)|\s+
// Every character belongs to one word.

// Where the word ends that starts at `at`, which is less than text.size() and the start of a
// character. `text` is well-formed UTF-8: anything else is cut somewhere.
std::size_t word_end(std::string_view text, std::size_t at);

template <class Take>
void for_each_word(std::string_view text, Take&& take) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    take(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace pareprop::data
