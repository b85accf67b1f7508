#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pareprop::data {

bool is_gzip(std::span<const std::byte> bytes);

// What was packed; several members one after the other are one content. Throws std::runtime_error
// when the bytes are damaged, cut off or followed by others, and when more than `limit` come out.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::size_t limit);

}  // namespace pareprop::data
