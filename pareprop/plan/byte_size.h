#pragma once

#include <cstdint>
#include <string_view>

namespace pareprop::plan {

// "8GiB", "512 MiB", "1.5GB", "4096 B": kB, MB, GB, TB are powers of 1000, KiB, MiB, GiB, TiB of
// 1024; upper and lower case mean the same. Throws std::invalid_argument for anything else, and
// where the unit is missing.
std::int64_t parse_byte_size(std::string_view text);

}  // namespace pareprop::plan
