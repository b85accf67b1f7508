#include "pareprop/io/utf8.h"

#include <algorithm>

namespace pareprop::io {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Bytes of the character that starts here, 0 when it is ill-formed. The second byte's range depends
// on the first: that is what excludes overlong forms, surrogates and what is above 10FFFF.
std::size_t character_bytes(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  if (first < 0x80) return 1;
  std::size_t bytes = 0;
  if (first >= 0xc2 && first <= 0xdf) bytes = 2;
  if (first >= 0xe0 && first <= 0xef) bytes = 3;
  if (first >= 0xf0 && first <= 0xf4) bytes = 4;
  if (bytes == 0 || text.size() - at < bytes) return 0;

  unsigned low = 0x80;
  unsigned high = 0xbf;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (std::size_t i = 1; i < bytes; ++i) {
    const unsigned next = byte_at(text, at + i);
    if (next < low || next > high) return 0;
    low = 0x80;
    high = 0xbf;
  }
  return bytes;
}

bool spoils_a_terminal(char32_t code) {
  const auto between = [&](char32_t first, char32_t last) { return code >= first && code <= last; };
  return code < 0x20 || between(0x7f, 0x9f) ||  // control characters
         code == 0x61c || code == 0x200e || code == 0x200f || between(0x2028, 0x202e) ||
         between(0x2066, 0x2069);  // line breaks, and marks of direction
}

struct Escaped {
  std::string text;
  std::size_t taken = 0;  // bytes of the original
};

// As much of the text as fills `most` bytes.
Escaped escaped(std::string_view text, std::size_t most) {
  constexpr char kDigits[] = "0123456789abcdef";
  Escaped result;
  while (result.taken < text.size() && result.text.size() < most) {
    const Utf8Character character = character_at(text, result.taken);
    const std::string_view bytes =
        text.substr(result.taken, std::max<std::size_t>(character.bytes, 1));
    if (character.bytes == 0 || spoils_a_terminal(character.code)) {
      for (const char byte : bytes) {
        const auto value = static_cast<unsigned char>(byte);
        result.text += {'\\', 'x', kDigits[value / 16], kDigits[value % 16]};
      }
    } else {
      result.text += bytes;
    }
    result.taken += bytes.size();
  }
  return result;
}

}  // namespace

std::size_t first_ill_formed(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = character_bytes(text, at);
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

Utf8Character character_at(std::string_view text, std::size_t at) {
  const std::size_t bytes = character_bytes(text, at);
  if (bytes == 0) return {};
  constexpr unsigned kFirstBits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  char32_t code = byte_at(text, at) & kFirstBits[bytes];
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6 | (byte_at(text, at + i) & 0x3f);
  return {code, bytes};
}

std::string to_utf8(char32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

std::string printable(std::string_view text) { return escaped(text, std::string::npos).text; }

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 100;
  const Escaped start = escaped(text, kMost);
  return "'" + start.text + (start.taken < text.size() ? "...'" : "'");
}

}  // namespace pareprop::io
