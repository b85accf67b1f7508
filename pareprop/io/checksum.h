#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH64_state_s;  // of xxhash

namespace pareprop::io {

// XXH64 with seed 0: finds damage by accident, at several GB/s; no protection against intent.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Of all that was given so far.
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH64_state_s* state) const;
  };

  std::unique_ptr<XXH64_state_s, Free> state_;
};

// 16 hexadecimal digits.
std::string hex(std::uint64_t checksum);

// Reads the file once. Throws what InputFile throws.
std::uint64_t file_checksum(const std::filesystem::path& path);

}  // namespace pareprop::io
