#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pareprop/io/safetensors_header.h"

namespace pareprop::io {

inline constexpr std::string_view kMetadataKey = "__metadata__";

// The JSON of a header: the tensors in the order of the text, their numbers not compared with each
// other or with the file yet, but every dimension and offset is in 0..2^63-1. Throws
// std::runtime_error.
struct SafetensorsJson {
  std::vector<SafetensorsEntry> tensors;
  SafetensorsMetadata metadata;
};
SafetensorsJson parse_safetensors_json(std::string_view text);

std::string format_safetensors_json(const SafetensorsHeader& header);

}  // namespace pareprop::io
