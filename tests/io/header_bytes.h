#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pareprop/io/safetensors_header.h"

namespace pareprop::io::testing {

inline std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

// A file with this header and `data_bytes` zeros.
inline std::string file_bytes(std::string_view json, std::size_t data_bytes = 0) {
  return length_bytes(json.size()) + std::string(json) + std::string(data_bytes, '\0');
}

inline SafetensorsHeader parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file.data(), file.size())), file.size());
}

}  // namespace pareprop::io::testing
