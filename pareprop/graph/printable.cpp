#include <algorithm>
#include <array>
#include <cstddef>

#include "pareprop/graph/text.h"

namespace pareprop::text {
namespace {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  // 0: what is there is no UTF-8
};

// The first one. `text` is not empty.
Character decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  char32_t code = first & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes};
}

bool is_harmless(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  // Controls (C0, DEL, C1); what cannot be seen; what turns the direction of writing round.
  static constexpr Range kHarmful[] = {{0x00, 0x1F},     {0x7F, 0x9F},      {0xAD, 0xAD},
                                       {0x61C, 0x61C},   {0x200B, 0x200B},  {0x200E, 0x200F},
                                       {0x2028, 0x202E}, {0x2060, 0x206F},  {0xFEFF, 0xFEFF},
                                       {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}};
  return std::none_of(std::begin(kHarmful), std::end(kHarmful), [&](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

std::string hex(char32_t value, int least_digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (; value != 0 || least_digits > 0; value >>= 4U, --least_digits) {
    digits.insert(digits.begin(), kDigits[value & 15U]);
  }
  return digits;
}

std::string escape(char32_t code) {
  if (code < 0x80) return "\\x" + hex(code, 2);
  return (code < 0x10000 ? "\\u" : "\\U") + hex(code, code < 0x10000 ? 4 : 8);
}

}  // namespace

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = decode(text);
    const std::string_view bytes = text.substr(0, std::max<std::size_t>(next.bytes, 1));
    if (next.code == '\n' || next.code == '\t') {
      out += lines == Lines::kept ? std::string(bytes) : next.code == '\n' ? "\\n" : "\\t";
    } else if (next.bytes == 0) {
      out += "\\x" + hex(static_cast<unsigned char>(bytes[0]), 2);
    } else if (is_harmless(next.code)) {
      out += bytes;
    } else {
      out += escape(next.code);
    }
    text.remove_prefix(bytes.size());
  }
  return out;
}

}  // namespace pareprop::text
