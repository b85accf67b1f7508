#include "pareprop/text/escape.h"

#include <algorithm>
#include <cstddef>

#include "pareprop/text/utf8.h"

namespace pareprop::text {
namespace {

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

// As much of the text as fills `most` bytes.
struct Escaped {
  std::string text;
  std::size_t taken = 0;  // bytes of the original
};

Escaped escaped(std::string_view text, Lines lines, std::size_t most) {
  Escaped result;
  std::string& out = result.text;
  while (result.taken < text.size() && out.size() < most) {
    const Utf8Character next = character_at(text, result.taken);
    const std::string_view bytes = text.substr(result.taken, std::max<std::size_t>(next.bytes, 1));
    if (next.code == '\n' || next.code == '\t') {
      out += lines == Lines::kept ? std::string(bytes) : next.code == '\n' ? "\\n" : "\\t";
    } else if (next.bytes == 0) {
      out += "\\x" + hex(static_cast<unsigned char>(bytes[0]), 2);
    } else if (is_harmless(next.code)) {
      out += bytes;
    } else {
      out += escape(next.code);
    }
    result.taken += bytes.size();
  }
  return result;
}

}  // namespace

std::string xml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML has no way to write most control characters, not even escaped.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string printable(std::string_view text, Lines lines) {
  return escaped(text, lines, std::string::npos).text;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 100;
  const Escaped start = escaped(text, Lines::escaped, kMost);
  return "'" + start.text + (start.taken < text.size() ? "...'" : "'");
}

}  // namespace pareprop::text
