#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pareprop::io {

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

// For messages and terminals: what could spoil them, as \xNN for each byte: control characters (of
// ASCII and of Unicode, line breaks among them), marks that turn the direction of writing, and
// bytes that are not UTF-8.
std::string printable(std::string_view text);

// printable(), in single quotes, at most about 100 bytes: a name out of a broken file cannot fill a
// log.
std::string in_quotes(std::string_view text);

}  // namespace pareprop::io
