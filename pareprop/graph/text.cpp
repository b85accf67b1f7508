#include "pareprop/graph/text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace pareprop::text {

std::string fixed(double value, int decimals) {
  std::array<char, 400> buffer;  // the largest double has 309 digits before the point
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, decimals);
  return {buffer.data(), result.ptr};
}

double tick_step(double length, int ticks) {
  const double least = length / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

int tick_decimals(double step) {
  constexpr int kMost = 9;
  const auto digits = static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return digits < 0 ? 0 : digits > kMost ? kMost : digits;
}

std::string json(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20) {
      out += "\\u00";
      out += kHex[code >> 4];
      out += kHex[code & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string dot(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

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

char letter(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return 'R';
    case TaskKind::gradient:
      return 'B';
    case TaskKind::weight_gradient:
      return 'W';
  }
  return '?';
}

std::string short_label(const Task& task) {
  std::string out(1, letter(task.kind));
  out += task.is_f() ? " F" : " G";
  out += std::to_string(task.block());
  if (task.stack != 0) out += '\'';
  return out;
}

}  // namespace pareprop::text
