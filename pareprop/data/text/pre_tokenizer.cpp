#include "pareprop/data/text/pre_tokenizer.h"

#include <algorithm>

#include "pareprop/data/text/unicode_class.h"
#include "pareprop/text/utf8.h"

namespace pareprop::data {
namespace {

struct Character {
  UnicodeClass kind;
  std::size_t end;
};

Character read(std::string_view text, std::size_t at) {
  const auto [code, bytes] = text::character_at(text, at);
  return {unicode_class(code), at + std::max<std::size_t>(bytes, 1)};
}

// Where the characters of one class end that go on at `at`.
std::size_t run_end(std::string_view text, std::size_t at, UnicodeClass kind) {
  while (at < text.size()) {
    const Character next = read(text, at);
    if (next.kind != kind) break;
    at = next.end;
  }
  return at;
}

std::size_t contraction_bytes(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

// White space before a word leaves its last character to what follows, unless it has no other.
std::size_t space_end(std::string_view text, std::size_t at) {
  std::size_t last = at;
  std::size_t end = at;
  while (end < text.size()) {
    const Character next = read(text, end);
    if (next.kind != UnicodeClass::space) return last > at ? last : end;
    last = end;
    end = next.end;
  }
  return end;
}

}  // namespace

std::size_t word_end(std::string_view text, std::size_t at) {
  if (text[at] == '\'') {
    if (const std::size_t bytes = contraction_bytes(text.substr(at)); bytes > 0) return at + bytes;
  }
  Character first = read(text, at);
  if (text[at] == ' ' && at + 1 < text.size()) first = read(text, at + 1);
  if (first.kind == UnicodeClass::space) return space_end(text, at);
  return run_end(text, first.end, first.kind);
}

}  // namespace pareprop::data
