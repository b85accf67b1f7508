#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pareprop::text {

// Where the first byte stands that is not part of well-formed UTF-8 (no overlong forms, surrogates
// or code points above 10FFFF); text.size() when all is well.
std::size_t first_ill_formed(std::string_view text);

struct Utf8Character {
  char32_t code = 0;
  std::size_t bytes = 0;  // 0: ill-formed
};

// The character that starts at byte `at`, which is less than text.size().
Utf8Character character_at(std::string_view text, std::size_t at);

// `code` is at most 10FFFF and not a surrogate.
std::string to_utf8(char32_t code);

}  // namespace pareprop::text
