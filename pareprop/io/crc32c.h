#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pareprop::io {

// Castagnoli's checksum (iSCSI's), of 0x82f63b78.
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace pareprop::io
