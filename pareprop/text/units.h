#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Numbers as people read them, the same in every locale.
namespace pareprop::text {

// "512 B", "12.3 MiB".
std::string bytes_text(double bytes);
// "950", "5.7 M", "1.8 G".
std::string count_text(std::int64_t count);
// "1.2e-07", "0", "inf", "nan".
std::string error_text(double value);
// "97.3 %" of 0.973.
std::string percent_text(double share);
// "0.42 s", "41.3 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

// "8GiB", "512 MiB", "1.5GB", "4096 B": kB, MB, GB, TB are powers of 1000, KiB, MiB, GiB, TiB of
// 1024; upper and lower case mean the same. Throws std::invalid_argument for anything else, and
// where the unit is missing.
std::int64_t parse_byte_size(std::string_view text);

}  // namespace pareprop::text
