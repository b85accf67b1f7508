#include "pareprop/io/checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <new>
#include <vector>

#include "pareprop/io/input_file.h"

namespace pareprop::io {

void Checksum::Free::operator()(XXH64_state_s* state) const { XXH64_freeState(state); }

Checksum::Checksum() : state_(XXH64_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH64_reset(state_.get(), 0);
}

void Checksum::update(std::span<const std::byte> bytes) {
  XXH64_update(state_.get(), bytes.data(), bytes.size());
}

void Checksum::update(std::string_view text) {
  update(std::as_bytes(std::span(text.data(), text.size())));
}

std::uint64_t Checksum::value() const { return XXH64_digest(state_.get()); }

std::string hex(std::uint64_t checksum) {
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, checksum >>= 4) {
    *digit = "0123456789abcdef"[checksum & 15];
  }
  return text;
}

std::uint64_t file_checksum(const std::filesystem::path& path) {
  const InputFile file(path);
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  Checksum sum;
  for (std::uint64_t at = 0; at < file.size();) {
    const auto piece = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), file.size() - at)));
    file.read(at, piece);
    sum.update(piece);
    at += piece.size();
  }
  return sum.value();
}

}  // namespace pareprop::io
