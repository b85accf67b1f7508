#include "pareprop/data/text/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "pareprop/text/utf8.h"

namespace pareprop::data {
namespace {

constexpr std::size_t kBytes = 256;
constexpr std::size_t kMoved = 68;

struct Alphabet {
  std::array<char32_t, kBytes> character{};   // of a byte
  std::array<unsigned char, kMoved> moved{};  // the byte that U+0100 + i stands for
};

constexpr bool is_printable(std::size_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

constexpr Alphabet make_alphabet() {
  Alphabet result;
  std::size_t moved = 0;
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    if (is_printable(byte)) {
      result.character[byte] = static_cast<char32_t>(byte);
    } else {
      result.character[byte] = static_cast<char32_t>(kBytes + moved);
      result.moved[moved++] = static_cast<unsigned char>(byte);
    }
  }
  return result;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string in_byte_alphabet(std::string_view bytes) {
  std::string result;
  for (const char byte : bytes) {
    result += text::to_utf8(kAlphabet.character[static_cast<unsigned char>(byte)]);
  }
  return result;
}

std::optional<std::string> from_byte_alphabet(std::string_view written) {
  std::string result;
  for (std::size_t at = 0; at < written.size();) {
    const auto [code, bytes] = text::character_at(written, at);
    if (bytes == 0) return std::nullopt;
    if (code < kBytes && is_printable(code)) {
      result += static_cast<char>(code);
    } else if (code >= kBytes && code < kBytes + kMoved) {
      result += static_cast<char>(kAlphabet.moved[code - kBytes]);
    } else {
      return std::nullopt;
    }
    at += bytes;
  }
  return result;
}

}  // namespace pareprop::data
