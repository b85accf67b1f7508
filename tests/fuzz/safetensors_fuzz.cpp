// libFuzzer: any bytes as a safetensors file. They are refused with std::runtime_error, or what was
// read from them covers the file and reads the same after it was written.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

#include "pareprop/io/safetensors_header.h"

namespace {

using pareprop::io::SafetensorsHeader;

void require(bool holds) {
  if (!holds) std::abort();
}

SafetensorsHeader parse(const void* data, std::size_t size, std::uint64_t file_size) {
  const std::span bytes(static_cast<const std::byte*>(data), size);
  return pareprop::io::parse_safetensors_header(bytes, file_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SafetensorsHeader header;
  try {
    header = parse(data, size, size);
  } catch (const std::runtime_error&) {
    return 0;
  }
  std::uint64_t covered = 0;
  for (const auto& entry : header.tensors) {
    require(entry.begin == covered && entry.begin <= entry.end);
    covered = entry.end;
  }
  require(header.data_begin + covered == size);
  // The data is not looked at.
  require(parse(data, header.data_begin, size) == header);

  const auto again = pareprop::io::lay_out_safetensors(header.tensors, header.metadata);
  const std::string text = pareprop::io::format_safetensors_header(again);
  require(parse(text.data(), text.size(), text.size() + covered) == again);
  require(again.tensors.size() == header.tensors.size() && again.metadata == header.metadata);
  return 0;
}
