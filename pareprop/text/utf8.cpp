#include "pareprop/text/utf8.h"

namespace pareprop::text {
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

}  // namespace pareprop::text
