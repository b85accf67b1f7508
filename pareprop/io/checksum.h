#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace pareprop::io {

// XXH64 with seed 0: finds damage by accident, at several GB/s; no protection against intent.
class Checksum {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Of all that was given so far.
  std::uint64_t value() const;

 private:
  static constexpr std::size_t kStripe = 32;

  void stripe(const std::byte* bytes);

  std::array<std::uint64_t, 4> lanes_ = {0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0,
                                         0x61C8864E7A143579};
  std::array<std::byte, kStripe> rest_{};  // what does not fill a stripe yet
  std::size_t held_ = 0;
  std::uint64_t length_ = 0;
};

// 16 hexadecimal digits.
std::string hex(std::uint64_t checksum);

// Reads the file once. Throws what InputFile throws.
std::uint64_t file_checksum(const std::filesystem::path& path);

}  // namespace pareprop::io
