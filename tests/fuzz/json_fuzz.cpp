// libFuzzer: any bytes as JSON of somebody else. They are refused with std::invalid_argument, or
// can be written and read again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "pareprop/io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nlohmann::json value;
  try {
    value = pareprop::io::parse_json(text, "fuzzed");
  } catch (const std::invalid_argument&) {
    return 0;
  }
  if (pareprop::io::parse_json(value.dump(), "written") != value) std::abort();
  return 0;
}
